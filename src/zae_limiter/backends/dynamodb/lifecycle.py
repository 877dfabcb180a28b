"""The table is created, described and deleted here."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ...core.exceptions import StorageUnavailable
from ...ports.deployment import VersionRecord
from .schema import TTL_ATTRIBUTE, get_table_definition
from .table import Table, repeat
from .versions import TABLE_VERSION, DynamoVersions
from .wire.errors import RequestInvalid, ResourceInUse, ResourceMissing

_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 2.0
_POLLS = 150
_INDEX_POLLS = 1800


async def describe_dynamo_table(table: Table) -> dict[str, Any] | None:
    """Return DynamoDB's description of the table; None when there is none."""
    try:
        answer = await repeat(
            table.io, lambda: table.client.call("DescribeTable", {"TableName": table.name})
        )
    except ResourceMissing:
        return None
    description: dict[str, Any] = answer["Table"]
    return description


async def create_dynamo_table(table: Table) -> None:
    """Create the table if there is none, and wait until it can be used."""
    # The table may exist already, or another client may be creating it at this moment.
    with suppress(ResourceInUse):
        await table.client.call("CreateTable", get_table_definition(table.name))
    await _wait_for_status(table, "ACTIVE")
    await _enable_ttl(table)
    await DynamoVersions(table).introduce(VersionRecord(TABLE_VERSION))


async def add_missing_indexes(table: Table) -> list[str]:
    """Add the indexes that an older table lacks, one after the other, as DynamoDB asks for, and
    return their names. Filling an index takes minutes on a large table."""
    definition = get_table_definition(table.name)
    described = await describe_dynamo_table(table) or {}
    known = {index["IndexName"] for index in described.get("GlobalSecondaryIndexes", ())}
    missing = [i for i in definition["GlobalSecondaryIndexes"] if i["IndexName"] not in known]
    for index in missing:
        request = {
            "TableName": table.name,
            "AttributeDefinitions": definition["AttributeDefinitions"],
            "GlobalSecondaryIndexUpdates": [{"Create": index}],
        }
        # Another client may be adding it at this moment.
        with suppress(ResourceInUse):
            await table.client.call("UpdateTable", request)
        await _wait_for_index(table, index["IndexName"])
    return [index["IndexName"] for index in missing]


async def _wait_for_index(table: Table, name: str) -> None:
    wait_s = _FIRST_WAIT_S
    for _ in range(_INDEX_POLLS):
        described = await describe_dynamo_table(table) or {}
        indexes = described.get("GlobalSecondaryIndexes", ())
        states = {index["IndexName"]: index["IndexStatus"] for index in indexes}
        if states.get(name) == "ACTIVE" and described["TableStatus"] == "ACTIVE":
            return
        await table.io.sleep(wait_s)
        wait_s = min(_LONGEST_WAIT_S, wait_s * 1.5)
    raise StorageUnavailable(f"Index {name} of {table.name} is still being filled: go on later")


async def delete_dynamo_table(table: Table) -> None:
    """Delete the table if there is one, and wait until it is gone."""
    try:
        await table.client.call("DeleteTable", {"TableName": table.name})
    except ResourceMissing:
        return
    await _wait_for_status(table, None)


async def _wait_for_status(table: Table, wanted: str | None) -> None:
    wait_s = _FIRST_WAIT_S
    for _ in range(_POLLS):
        described = await describe_dynamo_table(table)
        status = None if described is None else described["TableStatus"]
        if status == wanted:
            return
        await table.io.sleep(wait_s)
        wait_s = min(_LONGEST_WAIT_S, wait_s * 1.5)
    raise StorageUnavailable(f"Table {table.name} does not become {wanted or 'gone'}: {status}")


async def _enable_ttl(table: Table) -> None:
    if await _has_ttl(table):
        return
    setting = {"Enabled": True, "AttributeName": TTL_ATTRIBUTE}
    request = {"TableName": table.name, "TimeToLiveSpecification": setting}
    try:
        await table.client.call("UpdateTimeToLive", request)
    except (RequestInvalid, ResourceInUse):
        # DynamoDB refuses this, too, when another client has just enabled it.
        if not await _has_ttl(table):
            raise


async def _has_ttl(table: Table) -> bool:
    answer = await table.client.call("DescribeTimeToLive", {"TableName": table.name})
    found = answer["TimeToLiveDescription"]
    is_on = found["TimeToLiveStatus"] in ("ENABLING", "ENABLED")
    return is_on and found["AttributeName"] == TTL_ATTRIBUTE
