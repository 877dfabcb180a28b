"""This module has the checks of what counts usage from a table's stream: a Lambda, or processes."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from ...backends.dynamodb.checkpoints import DynamoCheckpoints, works_with_checkpoints
from ...backends.dynamodb.store import DynamoStore
from ...backends.dynamodb.streams import BOTH_IMAGES, DynamoStream, open_stream
from ...backends.dynamodb.url import DynamoUrl
from ...infra.aws import Aws
from ...ports.stream import Checkpoint, IteratorExpired
from .finding import Finding, guarded

_FAR_BEHIND_S = 300
_NEARLY_LOST_S = 12 * 3600
# Each costs two calls to DynamoDB Streams.
_MAX_SHARDS = 20
_METRIC_SPAN = timedelta(minutes=30)


async def check_readers(
    store: DynamoStore, url: DynamoUrl, described: dict[str, Any]
) -> list[Finding]:
    """Look who counts usage, and how far behind they are."""
    arn = described.get("LatestStreamArn")
    findings: list[Finding] = []
    for work in await works_with_checkpoints(store.table):
        fix = (
            f"Switch on a stream of the view type {BOTH_IMAGES}, and let these credentials read it."
        )
        findings += await guarded(f"aggregate {work}", fix, _check_process(store, url, work))
    record = store.opened_version
    if record is not None and record.lambda_version is not None and arn is not None:
        findings.append(check_lambda(Aws(url.region, url.endpoint_url), arn))
    if findings:
        return findings
    return [
        Finding(
            "usage",
            "warning",
            "nothing counts it: no Lambda is deployed, and no process has left a checkpoint",
            "Start `zae-limiter aggregate`, or deploy the Lambda with `zae-limiter deploy`.",
        )
    ]


async def _check_process(store: DynamoStore, url: DynamoUrl, work: str) -> list[Finding]:
    checkpoints = await DynamoCheckpoints(store.table, work).read_all()
    now_ms = store.table.io.now_ms()
    alive = sorted({c.owner for c in checkpoints.values() if c.lease_ends_ms > now_ms})
    name = f"aggregate {work}"
    stream = await open_stream(
        store.table, blocking=True, region=url.region, endpoint_url=url.endpoint_url
    )
    try:
        waits_s = await _longest_wait_s(stream, checkpoints, now_ms)
    finally:
        await stream.close()
    waiting = f"records wait for {waits_s:,.0f} s" if waits_s else "no record waits"
    told = f"{len(alive)} process(es) at work, {waiting}"
    if waits_s > _FAR_BEHIND_S or (waits_s and not alive):
        fix = "Start `zae-limiter aggregate`, or more of them: a stream keeps records for a day."
        return [Finding(name, "problem" if waits_s > _NEARLY_LOST_S else "warning", told, fix)]
    return [Finding(name, "ok", told)]


async def _longest_wait_s(
    stream: DynamoStream, checkpoints: dict[str, Checkpoint], now_ms: int
) -> float:
    """Return how long the oldest record has waited that no checkpoint covers. Zero when none
    waits."""
    waits_s = [0.0]
    known = {shard.shard_id for shard in await stream.shards()}
    for shard_id, checkpoint in sorted(checkpoints.items())[:_MAX_SHARDS]:
        if shard_id not in known:
            continue
        iterator = await stream.begin(shard_id, checkpoint.record_id)
        if iterator is None:
            continue
        try:
            page = await stream.read(shard_id, iterator)
        except IteratorExpired:
            continue
        if page.batch.buckets:
            waits_s.append((now_ms - page.batch.buckets[0].at_ms) / 1000)
    return max(waits_s)


def check_lambda(aws: Aws, stream_arn: str) -> Finding:
    """Look at the Lambda's event source mapping, and at how old the records are that it gets."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        mappings = aws["lambda"].list_event_source_mappings(EventSourceArn=stream_arn)
        found = mappings["EventSourceMappings"]
        if not found:
            fix = "Run `zae-limiter upgrade`: no Lambda reads the stream."
            return Finding("lambda", "problem", "no event source mapping for the stream", fix)
        state = ", ".join(sorted({each["State"] for each in found}))
        age_s = _iterator_age_s(aws, found[0]["FunctionArn"].rpartition(":")[2])
    except (BotoCoreError, ClientError) as error:
        return Finding("lambda", "unknown", str(error))
    finally:
        aws.close()
    known = "" if age_s is None else f", records are {age_s:,.0f} s old"
    told = f"event source mapping {state}{known}"
    if state != "Enabled":
        return Finding("lambda", "problem", told, "Enable the event source mapping.")
    if age_s is not None and age_s > _FAR_BEHIND_S:
        fix = "Look at the Lambda's log and its throttles; a stream keeps records for a day."
        return Finding("lambda", "warning", told, fix)
    return Finding("lambda", "ok", told)


def _iterator_age_s(aws: Aws, function_name: str) -> float | None:
    """Return CloudWatch's newest figure; None where it has none."""
    now = datetime.now(UTC)
    answer = aws["cloudwatch"].get_metric_statistics(
        Namespace="AWS/Lambda",
        MetricName="IteratorAge",
        Dimensions=[{"Name": "FunctionName", "Value": function_name}],
        StartTime=now - _METRIC_SPAN,
        EndTime=now,
        Period=60,
        Statistics=["Maximum"],
    )
    points = sorted(answer.get("Datapoints", ()), key=lambda point: point["Timestamp"])
    age_ms = points[-1]["Maximum"] if points else math.nan
    return None if math.isnan(age_ms) else age_ms / 1000
