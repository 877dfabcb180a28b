"""The table is made as designed, once, whoever else makes it too."""

from __future__ import annotations

from typing import Any

from tests.support.dynamodb import Runner, new_name, open_store
from tests.support.servers.processes import Server
from zae_limiter.backends.dynamodb.lifecycle import (
    create_dynamo_table,
    delete_dynamo_table,
    describe_dynamo_table,
)
from zae_limiter.backends.dynamodb.store import DynamoStore

CHILD = ["cascade", "created_at", "entity_id", "metadata", "name", "parent_id", "version"]


def projections(described: dict[str, Any]) -> dict[str, tuple[str, list[str]]]:
    return {
        index["IndexName"]: (
            index["Projection"]["ProjectionType"],
            sorted(index["Projection"].get("NonKeyAttributes", [])),
        )
        for index in described["GlobalSecondaryIndexes"]
    }


def test_no_index_holds_a_balance(store: DynamoStore, driver: Runner) -> None:
    described = driver.run(describe_dynamo_table(store.table))
    assert projections(described) == {
        "GSI1": ("INCLUDE", CHILD),
        "GSI2": ("KEYS_ONLY", []),
        "GSI3": ("KEYS_ONLY", []),
        "GSI4": ("KEYS_ONLY", []),
    }
    assert described["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert described["StreamSpecification"]["StreamViewType"] == "NEW_AND_OLD_IMAGES"


def test_a_table_is_made_once_and_expires_items(store: DynamoStore, driver: Runner) -> None:
    driver.run(create_dynamo_table(store.table))
    request = {"TableName": store.table.name}
    found = driver.run(store.table.client.call("DescribeTimeToLive", request))
    assert found["TimeToLiveDescription"]["AttributeName"] == "ttl"
    assert found["TimeToLiveDescription"]["TimeToLiveStatus"] in ("ENABLING", "ENABLED")


def test_many_may_make_the_same_table_at_once(driver: Runner, dynamodb: Server) -> None:
    name = new_name()

    async def open_many() -> list[Any]:
        return await driver.io.gather([open_store(dynamodb, name, driver.io) for _ in range(5)])

    stores = driver.run(open_many())
    assert [type(store) for store in stores] == [DynamoStore] * 5
    driver.run(stores[0].delete_table())
    for store in stores:
        driver.run(store.close())


def test_a_table_is_deleted_once(store: DynamoStore, driver: Runner) -> None:
    for _ in range(2):
        driver.run(delete_dynamo_table(store.table))
        assert driver.run(describe_dynamo_table(store.table)) is None
    driver.run(store.create_table())
    driver.run(store.ping())
