from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.support.servers.chaos import INTERNAL_ERROR, THROTTLED, ChaosProxy, Delay, closed_door
from tests.support.servers.processes import Server
from tests.support.transports import BOTH, unhurried
from tests.support.wire_drivers import Driver
from tests.support.wire_tables import create_table, key
from zae_limiter.backends.dynamodb.wire.client import DynamoClient
from zae_limiter.backends.dynamodb.wire.connect import open_client, signed
from zae_limiter.backends.dynamodb.wire.credentials import Access
from zae_limiter.backends.dynamodb.wire.edge import Limits
from zae_limiter.backends.dynamodb.wire.errors import (
    ConditionFailed,
    RequestInvalid,
    ResourceInUse,
    ResourceMissing,
    TransactionCanceled,
)
from zae_limiter.backends.dynamodb.wire.meter import OperationUnits
from zae_limiter.backends.dynamodb.wire.retry import Backoff
from zae_limiter.backends.dynamodb.wire.server_clock import ServerClock
from zae_limiter.backends.dynamodb.wire.values import from_item, to_attribute, to_item
from zae_limiter.core.exceptions import StorageUnavailable, ValidationError
from zae_limiter.runtime.blocking import BlockingIo, run
from zae_limiter.testing import ManualClock

from .conftest import Connect, act_as_caller_of


def _add(table: str, name: str, amount: int, **more: Any) -> dict[str, Any]:
    """Return parameters that count an item up."""
    return {
        "TableName": table,
        "Key": key(name),
        "UpdateExpression": "ADD #n :amount",
        "ExpressionAttributeNames": {"#n": "count"},
        "ExpressionAttributeValues": {":amount": to_attribute(amount)},
        **more,
    }


async def _count(client: DynamoClient, table: str, name: str) -> int:
    parameters = {"TableName": table, "Key": key(name), "ConsistentRead": True}
    item = (await client.call("GetItem", parameters)).get("Item", {})
    return int(from_item(item).get("count", 0))


@BOTH
def test_a_conditional_write_returns_the_new_item_or_the_item_in_its_way(
    dynamodb: Server, driver: Driver, connect: Connect, transport: str
) -> None:
    client = connect(dynamodb, transport=transport)

    async def flow() -> None:
        table = await create_table(client, driver.io)
        write = _add(
            table,
            "a",
            10**37,
            ConditionExpression="attribute_not_exists(PK)",
            ReturnValues="ALL_NEW",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        written = await client.call("UpdateItem", write)
        whole = {"PK": "a", "SK": "#", "count": 10**37}
        assert from_item(written["Attributes"]) == whole
        with pytest.raises(ConditionFailed) as raised:
            await client.call("UpdateItem", write)
        assert raised.value.item is not None
        assert from_item(raised.value.item) == whole
        await client.call("DeleteTable", {"TableName": table})

    driver.run(flow())
    assert client.meter.calls["UpdateItem"] == 2


@BOTH
def test_a_failed_condition_on_nothing_has_no_item(
    dynamodb: Server, driver: Driver, connect: Connect, transport: str
) -> None:
    client = connect(dynamodb, transport=transport)

    async def flow() -> None:
        table = await create_table(client, driver.io)
        with pytest.raises(ConditionFailed) as raised:
            await client.call(
                "UpdateItem",
                _add(
                    table,
                    "a",
                    1,
                    ConditionExpression="attribute_exists(PK)",
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                ),
            )
        assert not raised.value.item
        await client.call("DeleteTable", {"TableName": table})

    driver.run(flow())


@BOTH
def test_a_transaction_is_all_or_none_and_says_why(
    dynamodb: Server, driver: Driver, connect: Connect, transport: str
) -> None:
    client = connect(dynamodb, transport=transport)

    async def flow() -> None:
        table = await create_table(client, driver.io)
        refused = _add(
            table,
            "b",
            1,
            ConditionExpression="attribute_not_exists(PK)",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        await client.call("UpdateItem", _add(table, "b", 5))
        actions = [{"Update": _add(table, "a", 1)}, {"Update": refused}]
        with pytest.raises(TransactionCanceled) as raised:
            await client.call("TransactWriteItems", {"TransactItems": actions})
        first, second = raised.value.reasons
        assert (first.code, first.item) == ("None", None)
        assert second.code == "ConditionalCheckFailed"
        assert second.item is not None
        assert from_item(second.item)["count"] == 5
        assert await _count(client, table, "a") == 0

        actions = [{"Update": _add(table, "a", 1)}, {"Update": _add(table, "b", 1)}]
        request = {"TransactItems": actions, "ClientRequestToken": table[-32:]}
        await client.call("TransactWriteItems", request)
        await client.call("TransactWriteItems", request)
        assert [await _count(client, table, name) for name in "ab"] == [1, 6]
        await client.call("DeleteTable", {"TableName": table})

    driver.run(flow())


@BOTH
def test_a_batch_returns_the_items_that_exist(
    dynamodb: Server, driver: Driver, connect: Connect, transport: str
) -> None:
    client = connect(dynamodb, transport=transport)

    async def flow() -> None:
        table = await create_table(client, driver.io)
        item = {"PK": "a", "SK": "#", "tags": {"x", "y"}, "nested": {"on": True, "none": None}}
        await client.call("PutItem", {"TableName": table, "Item": to_item(item)})
        wanted = {table: {"Keys": [key("a"), key("b")], "ConsistentRead": True}}
        answer = await client.call("BatchGetItem", {"RequestItems": wanted})
        assert [from_item(each) for each in answer["Responses"][table]] == [item]
        assert answer["UnprocessedKeys"] == {}
        await client.call("DeleteTable", {"TableName": table})

    driver.run(flow())


@BOTH
def test_capacity_is_metered_by_table_and_index(
    dynamodb: Server, driver: Driver, connect: Connect, transport: str
) -> None:
    client = connect(dynamodb, transport=transport)

    async def flow() -> str:
        table = await create_table(client, driver.io)
        put = {
            "TableName": table,
            "Item": to_item({"PK": "a", "SK": "#", "GSI1PK": "x"}),
            "ReturnConsumedCapacity": "INDEXES",
        }
        await client.call("PutItem", put)
        await client.call("DeleteTable", {"TableName": table})
        return table

    table = driver.run(flow())
    assert client.meter.units == {
        OperationUnits("PutItem", table, ""): 1.0,
        OperationUnits("PutItem", table, "GSI1"): 1.0,
    }


@BOTH
def test_errors_about_tables_have_their_own_exceptions(
    dynamodb: Server, driver: Driver, connect: Connect, transport: str
) -> None:
    client = connect(dynamodb, transport=transport)

    async def flow() -> None:
        with pytest.raises(ResourceMissing):
            await client.call("GetItem", {"TableName": "no-such-table", "Key": key("a")})
        table = await create_table(client, driver.io)
        described = (await client.call("DescribeTable", {"TableName": table}))["Table"]
        assert isinstance(described["CreationDateTime"], float | int)
        again = {
            name: described[name] for name in ("TableName", "KeySchema", "AttributeDefinitions")
        }
        definitions = [each for each in again["AttributeDefinitions"] if "GSI" not in str(each)]
        again["AttributeDefinitions"] = definitions
        with pytest.raises(ResourceInUse):
            await client.call("CreateTable", {**again, "BillingMode": "PAY_PER_REQUEST"})
        with pytest.raises(RequestInvalid, match=r"(?i)syntax|invalid"):
            await client.call("UpdateItem", {**_add(table, "a", 1), "UpdateExpression": "ADD ("})
        await client.call("DeleteTable", {"TableName": table})

    driver.run(flow())
    assert client.meter.requests["UpdateItem"] == 1


@BOTH
def test_throttling_is_waited_out(
    dynamodb: Server, driver: Driver, connect: Connect, transport: str
) -> None:
    with ChaosProxy(dynamodb.url, [THROTTLED, THROTTLED]) as proxy:
        client = unhurried(connect(dynamodb, proxy.url, transport=transport))
        assert "TableNames" in driver.run(client.call("ListTables", {}))
    assert client.meter.calls["ListTables"] == 1
    assert client.meter.requests["ListTables"] == len(proxy.requests) == 3


@BOTH
def test_throttling_that_lasts_is_reported_as_such(
    dynamodb: Server, driver: Driver, connect: Connect, transport: str
) -> None:
    with ChaosProxy(dynamodb.url, [THROTTLED] * 20) as proxy:
        client = unhurried(connect(dynamodb, proxy.url, transport=transport))
        with pytest.raises(StorageUnavailable, match="too busy") as raised:
            driver.run(client.call("ListTables", {}))
    assert (raised.value.retryable, raised.value.ambiguous) == (True, False)
    assert len(proxy.requests) == 7


@BOTH
def test_an_ambiguous_request_is_not_sent_again(
    dynamodb: Server, driver: Driver, connect: Connect, transport: str
) -> None:
    with ChaosProxy(dynamodb.url, [INTERNAL_ERROR]) as proxy:
        client = connect(dynamodb, proxy.url, transport=transport)
        with pytest.raises(StorageUnavailable, match="no result") as raised:
            driver.run(client.call("ListTables", {}))
    assert raised.value.ambiguous
    assert len(proxy.requests) == 1


@BOTH
def test_a_request_that_was_never_sent_is_retried_a_few_times(
    dynamodb: Server, driver: Driver, connect: Connect, transport: str
) -> None:
    with closed_door() as url:
        client = unhurried(connect(dynamodb, url, transport=transport))
        with pytest.raises(StorageUnavailable) as raised:
            driver.run(client.call("ListTables", {}))
    assert (raised.value.retryable, raised.value.ambiguous) == (True, False)
    assert client.meter.requests["ListTables"] == 4


def test_no_retry_begins_after_the_deadline(
    dynamodb: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third wait would end 0.1 + 0.2 + 0.4 seconds after the call began."""

    class Clocked(BlockingIo):
        def entropy(self) -> int:
            return 2**80 - 1

    act_as_caller_of(dynamodb, monkeypatch)
    io, clock = Clocked(ManualClock()), ServerClock()
    backoff = Backoff(retries=20, base_s=0.1, ceiling_s=9, total_s=9, deadline_s=0.6)
    with ChaosProxy(dynamodb.url, [THROTTLED] * 20) as proxy:
        transport = signed(io, clock, Access(dynamodb.region, proxy.url), blocking=True)
        client = DynamoClient(io, transport, clock, backoff)
        with pytest.raises(StorageUnavailable, match="too busy"):
            run(client.call("ListTables", {}))
        run(client.close())
    assert len(proxy.requests) == 3


def _race(driver: Driver, client: DynamoClient, calls: int) -> list[Any]:
    """Make calls at once, from tasks of an event loop or from threads."""

    async def all_tasks() -> list[Any]:
        return list(await asyncio.gather(*(client.call("ListTables", {}) for _ in range(calls))))

    if not driver.blocking:
        results: list[Any] = driver.run(all_tasks())
        return results
    results = []
    start = threading.Barrier(calls)

    def one() -> None:
        start.wait()
        results.append(driver.run(client.call("ListTables", {})))

    threads = [threading.Thread(target=one) for _ in range(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@BOTH
def test_a_hundred_racing_first_calls_share_a_pool(
    dynamodb: Server, driver: Driver, connect: Connect, transport: str
) -> None:
    limits = Limits(connect_timeout_s=30, read_timeout_s=30, connections=5)
    # Answers that take a while keep the connections busy, so that more would be wanted.
    with ChaosProxy(dynamodb.url, [Delay(0.02)] * 100) as proxy:
        client = connect(dynamodb, proxy.url, limits, transport)
        results = _race(driver, client, 100)
    assert len(results) == 100
    assert all("TableNames" in result for result in results)
    # botocore's pool does not wait: it makes connections beyond its size and drops them.
    if transport != "botocore" or not driver.blocking:
        assert proxy.connections <= 5


@BOTH
def test_no_write_is_lost_among_threads_or_tasks(
    dynamodb: Server, driver: Driver, connect: Connect, transport: str
) -> None:
    client = connect(dynamodb, transport=transport)
    table = driver.run(create_table(client, driver.io))

    async def some() -> None:
        for _ in range(10):
            await client.call("UpdateItem", _add(table, "a", 1))

    _together(driver, [some() for _ in range(8)])
    assert driver.run(_count(client, table, "a")) == 80
    driver.run(client.call("DeleteTable", {"TableName": table}))


def _together(driver: Driver, flows: list[Coroutine[Any, Any, Any]]) -> None:
    async def gather() -> None:
        await asyncio.gather(*flows)

    if driver.blocking:
        threads = [threading.Thread(target=driver.run, args=(flow,)) for flow in flows]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        driver.run(gather())


@BOTH
def test_a_client_refuses_calls_after_it_was_closed(
    dynamodb: Server, driver: Driver, connect: Connect, transport: str
) -> None:
    client = connect(dynamodb, transport=transport)
    assert "TableNames" in driver.run(client.call("ListTables", {}))
    for _ in range(2):
        driver.run(client.close())
        with pytest.raises(RuntimeError, match="has been closed"):
            driver.run(client.call("ListTables", {}))


def test_the_transport_can_be_chosen_by_the_environment(
    dynamodb: Server, driver: Driver, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZAEL_TRANSPORT", "botocore")
    with ChaosProxy(dynamodb.url) as proxy:
        driver.run(connect(dynamodb, proxy.url).call("ListTables", {}))
        driver.run(connect(dynamodb, proxy.url, transport="wire").call("ListTables", {}))
    agents = [request.headers["user-agent"] for request, _ in proxy.requests]
    assert "botocore" in agents[0].lower()
    assert agents[1].startswith("zae-limiter/")


def test_an_unknown_transport_is_refused(driver: Driver) -> None:
    with pytest.raises(ValidationError, match="wire, botocore"):
        open_client(driver.io, blocking=driver.blocking, transport="carrier-pigeon")
