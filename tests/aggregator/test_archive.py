"""Audit events that TTL removed are archived once; events that somebody deleted are not."""

from __future__ import annotations

import gzip
import json
import time
from typing import Any

import boto3
import pytest

from tests.support.aggregators import Aggregator, checkpoints
from tests.support.lambda_events import EXPIRED, audit_record
from tests.support.s3_bucket import Bucket
from tests.support.servers.processes import Server
from tests.support.servers.tables import OwnTable, own_table
from zae_limiter.backends.dynamodb.stream_records import decode_records
from zae_limiter.flows.stream.archive import by_day, pack
from zae_limiter_aggregator.archiver import archive_audit_events

_TTL_PATIENCE_S = 150


def objects(records: list[dict[str, Any]]) -> dict[str, bytes]:
    removals = decode_records(records).removals
    return dict(pack(day, expired) for day, expired in by_day(removals).items())


def test_a_batch_makes_one_object_for_each_day_of_its_events() -> None:
    made = objects(
        [
            audit_record(100, timestamp="2024-03-09T23:59:59Z"),
            audit_record(9, timestamp="2024-03-09T10:00:00Z"),
            audit_record(101, timestamp="2024-03-10T00:00:00Z"),
        ]
    )
    assert list(made) == [
        "audit/year=2024/month=03/day=09/audit-9-100.jsonl.gz",
        "audit/year=2024/month=03/day=10/audit-101-101.jsonl.gz",
    ]
    lines = gzip.decompress(made[min(made)]).decode().splitlines()
    assert [json.loads(line)["event_id"] for line in lines] == ["event-9", "event-100"]
    assert json.loads(lines[0]) == {
        "event_id": "event-9",
        "entity_id": "key-1",
        "action": "limits_set",
        "timestamp": "2024-03-09T10:00:00Z",
        "principal": "admin",
        "resource": "gpt-4",
        "details": {"limits": ["rpm"]},
        "namespace_id": "ns-1",
    }


def test_a_batch_in_another_order_and_with_repeats_makes_equal_bytes() -> None:
    records = [audit_record(number) for number in range(1, 30)]
    again = [*reversed(records), *records[:5]]
    assert objects(records) == objects(again)


def test_events_that_were_deleted_by_hand_are_not_archived() -> None:
    by_hand = {"type": "Service", "principalId": "somebody"}
    assert objects([audit_record(1, by_hand), audit_record(2, None)]) == {}
    in_boto3s_case = {"Type": EXPIRED["type"], "PrincipalId": EXPIRED["principalId"]}
    assert len(objects([audit_record(3, in_boto3s_case)])) == 1


def test_an_event_with_a_damaged_time_is_filed_under_the_day_it_went() -> None:
    (key,) = objects([audit_record(1, timestamp="yesterday")])
    assert key.startswith("audit/year=2024/month=06/day=10/")


def test_an_event_with_an_offset_is_filed_under_its_day_in_utc() -> None:
    (key,) = objects([audit_record(1, timestamp="2024-03-10T01:00:00+14:00")])
    assert key.startswith("audit/year=2024/month=03/day=09/")


@pytest.mark.parametrize(
    "odd",
    [
        {"details": {"M": {"photo": {"B": "AAEC"}}}},
        {"details": {"S": "a text"}},
        {"entity_id": {"N": "7"}},
        {"timestamp": {"N": "1718000000"}},
        {"action": {"NULL": True}},
    ],
)
def test_an_expired_event_that_cannot_be_read_is_archived_as_it_is(odd: dict[str, Any]) -> None:
    record = audit_record(1)
    record["dynamodb"]["OldImage"].update(odd)
    ((key, content),) = objects([record]).items()
    assert key.startswith("audit/year=2024/month=06/day=10/")
    line = json.loads(gzip.decompress(content))
    assert line == {"item": record["dynamodb"]["OldImage"], "namespace_id": "ns-1"}


@pytest.mark.usefixtures("deployed")
def test_objects_are_put_with_their_type_and_encoding(bucket: Bucket) -> None:
    records = [audit_record(1), audit_record(2)]
    assert archive_audit_events(records, "archive") == (2, frozenset())
    assert archive_audit_events(records, "archive") == (2, frozenset())
    assert bucket.puts == 2
    ((path, headers),) = bucket.headers.items()
    assert path == "/archive/audit/year%3D2024/month%3D03/day%3D09/audit-1-2.jsonl.gz"
    assert headers["content-type"] == "application/x-ndjson"
    assert headers["content-encoding"].startswith("gzip")


@pytest.mark.usefixtures("deployed")
def test_a_put_that_fails_names_its_records(bucket: Bucket) -> None:
    bucket.fails = True
    records = [audit_record(1), audit_record(2)]
    assert archive_audit_events(records, "archive") == (0, frozenset({"1", "2"}))


@pytest.mark.usefixtures("deployed")
def test_a_batch_of_which_only_some_days_can_be_put_is_complete_after_redelivery(
    bucket: Bucket,
) -> None:
    days = {number: f"2024-03-{9 + number % 3:02}T10:00:00Z" for number in range(1, 10)}
    records = [audit_record(number, timestamp=day) for number, day in days.items()]
    bucket.refused = "day%3D10"
    archived, failed = archive_audit_events(records, "archive")
    assert archived == 6
    assert failed == {"1", "4", "7"}
    before = dict(bucket.objects)
    bucket.refused = None
    # Lambda delivers again from the lowest failed record on, which here is the whole batch.
    assert archive_audit_events(records, "archive") == (9, frozenset())
    assert bucket.objects.items() >= before.items()
    assert sorted(line["event_id"] for line in bucket.lines()) == [f"event-{n}" for n in days]


def has_expired(table: OwnTable) -> bool:
    return not [item for item in table.items() if "/AUDIT#" in item["PK"]["S"]]


@pytest.mark.slow
def test_events_that_a_server_expires_are_archived_once_and_deleted_ones_are_not(
    extenddb: Server, ministack: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    assert extenddb.access_key is not None
    assert extenddb.secret_key is not None
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", extenddb.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", extenddb.secret_key)
    monkeypatch.setenv("AWS_REGION", extenddb.region)
    monkeypatch.setenv("AWS_DEFAULT_REGION", extenddb.region)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", ministack.url)
    boto3.client("s3").create_bucket(Bucket="archive")
    with own_table(extenddb) as table:
        _expire_one_delete_one(table)
        found = []
        for _ in range(2):
            reader = Aggregator(table, tmp_path, "--once", "--archive-bucket", "archive")
            assert reader.wait() == 0, reader.errors()
            assert reader.lines()[-1]["events_archived"] == 1
            found.append(stored_objects("archive"))
            # Without its checkpoint, the next reader is delivered everything again.
            for item in checkpoints(table):
                table.call("DeleteItem", Key={"PK": item["PK"], "SK": item["SK"]})
    assert found[0] == found[1]
    ((key, content),) = found[0].items()
    assert key.startswith("audit/year=2024/month=03/day=09/audit-")
    (line,) = gzip.decompress(content).decode().splitlines()
    assert json.loads(line)["event_id"] == "event-1"


def stored_objects(bucket: str) -> dict[str, bytes]:
    """The objects of a bucket in S3, by key."""
    s3 = boto3.client("s3")
    keys = [each["Key"] for each in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]
    return {key: s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}


def _expire_one_delete_one(table: OwnTable) -> None:
    table.call(
        "UpdateTimeToLive",
        TimeToLiveSpecification={"Enabled": True, "AttributeName": "ttl"},
    )
    expires_at_s = str(int(time.time()) - 60)
    for number in (1, 2):
        image = audit_record(number)["dynamodb"]["OldImage"]
        ttl = {"ttl": {"N": expires_at_s}} if number == 1 else {}
        table.call("PutItem", Item={**image, **ttl})
    keys = audit_record(2)["dynamodb"]["Keys"]
    table.call("DeleteItem", Key=keys)
    deadline = time.monotonic() + _TTL_PATIENCE_S
    while not has_expired(table):
        assert time.monotonic() < deadline, "nothing expired"
        time.sleep(1)
