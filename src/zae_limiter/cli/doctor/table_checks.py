"""This module has the checks of a DynamoDB table: credentials, table, stream and clock."""

from __future__ import annotations

from typing import Any

from ...backends.dynamodb.lifecycle import describe_dynamo_table
from ...backends.dynamodb.schema import get_table_definition
from ...backends.dynamodb.store import DynamoStore
from ...backends.dynamodb.streams import BOTH_IMAGES
from ...backends.dynamodb.url import DynamoUrl
from ...backends.dynamodb.wire.credentials import Access
from ...core.exceptions import ZAELimiterError
from .finding import Finding, guarded
from .reader_checks import check_readers

_TOLERANCE_S = 2.0


def check_credentials(url: DynamoUrl) -> Finding:
    """Find credentials and region where AWS keeps them."""
    access = Access(url.region, url.endpoint_url)
    try:
        grant = access.obtain()
    except ZAELimiterError as error:
        fix = "`aws configure list` shows which profile, credentials and region are set, and where."
        return Finding("credentials", "problem", str(error), fix)
    method = getattr(access.session().get_credentials(), "method", "unknown")
    key = f"...{grant.credentials.access_key[-4:]}"
    told = f"key {key} ({method}), region {grant.region}, {grant.endpoint.host}"
    return Finding("credentials", "ok", told)


async def check_table(store: DynamoStore, url: DynamoUrl) -> list[Finding]:
    """Compare the table with the one that a client would create; look at its stream and at who
    reads it."""
    described = await describe_dynamo_table(store.table)
    if described is None:
        return [Finding("table", "problem", "it is gone", "Run `zae-limiter deploy`.")]
    fix = "Let these credentials read the table's own records."
    readers = await guarded("readers", fix, check_readers(store, url, described))
    return [judge_table(described), check_stream(described), *readers]


def judge_table(described: dict[str, Any]) -> Finding:
    """Return whether a table has the indexes that a client needs, and is ready."""
    indexes = {i["IndexName"]: i for i in described.get("GlobalSecondaryIndexes", ())}
    wanted = [i["IndexName"] for i in get_table_definition("")["GlobalSecondaryIndexes"]]
    missing = [name for name in wanted if name not in indexes]
    busy = [
        name for name, index in indexes.items() if index.get("IndexStatus", "ACTIVE") != "ACTIVE"
    ]
    status = described["TableStatus"]
    told = f"{status}, {len(indexes)} indexes, about {described.get('ItemCount', 0):,} items"
    if missing:
        fix = "Run `zae-limiter migrate`, which adds them."
        return Finding("table", "problem", f"{told}; {', '.join(missing)} missing", fix)
    if status not in ("ACTIVE", "UPDATING") or busy:
        fix = "Wait until AWS has finished with it."
        return Finding("table", "warning", f"{told}; {', '.join(busy)} not ready", fix)
    return Finding("table", "ok", told)


def check_stream(described: dict[str, Any]) -> Finding:
    """Look whether the stream has what counting usage needs."""
    view = described.get("StreamSpecification", {}).get("StreamViewType")
    if view == BOTH_IMAGES:
        return Finding("stream", "ok", f"on, {view}")
    told = "off: usage is not counted" if view is None else f"{view}: usage is not counted"
    fix = f"Switch on a stream of the view type {BOTH_IMAGES}; `zae-limiter upgrade` does."
    return Finding("stream", "warning", told, fix)


def check_skew(store: DynamoStore) -> Finding:
    """Compare this machine's clock with the dates of DynamoDB's answers."""
    difference_s = store.table.client.clock.difference_s
    if difference_s is None:
        return Finding("clock", "unknown", "no answer had a date")
    if abs(difference_s) <= _TOLERANCE_S:
        return Finding("clock", "ok", f"within {_TOLERANCE_S:.0f} s of the server's")
    side = "behind" if difference_s > 0 else "ahead of"
    return Finding(
        "clock",
        "warning",
        f"this machine is about {abs(difference_s):,.0f} s {side} the server",
        "Synchronise it (NTP). The limiter goes by the server's clock meanwhile.",
    )
