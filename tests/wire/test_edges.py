from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from tests.support.servers.chaos import (
    Act,
    Answer,
    ChaosProxy,
    Corrupt,
    Delay,
    DropAnswer,
    Hold,
    Pass,
    Reset,
    Truncate,
    dead_end,
    seeded,
)
from tests.support.servers.processes import Server
from tests.support.servers.tables import PATIENT
from tests.support.transports import BOTH, unhurried
from tests.support.wire_drivers import Driver
from tests.support.wire_tables import create_table, key
from zae_limiter.backends.dynamodb.wire.client import DynamoClient
from zae_limiter.backends.dynamodb.wire.edge import Limits
from zae_limiter.backends.dynamodb.wire.values import from_item, to_attribute
from zae_limiter.core.exceptions import StorageUnavailable

from .conftest import Connect

_IMPATIENT = Limits(connect_timeout_s=0.3, read_timeout_s=0.3, connections=10)
# Far above any short timeout here: only a hang reaches it.
_HANG_S = 40.0


def _add_one(table: str) -> dict[str, Any]:
    return {
        "TableName": table,
        "Key": key("a"),
        "UpdateExpression": "ADD #n :one",
        "ExpressionAttributeNames": {"#n": "count"},
        "ExpressionAttributeValues": {":one": to_attribute(1)},
    }


async def _count(client: DynamoClient, table: str) -> int:
    parameters = {"TableName": table, "Key": key("a"), "ConsistentRead": True}
    item = (await client.call("GetItem", parameters)).get("Item", {})
    return int(from_item(item).get("count", 0))


async def _count_in_time(client: DynamoClient, table: str) -> int:
    """Count until an answer is in time: a busy machine may be slower than the client waits."""
    for _ in range(50):
        try:
            return await _count(client, table)
        except StorageUnavailable as error:
            if "Timeout" not in type(error.cause).__name__:
                raise
    raise AssertionError("no answer ever came in time")


def _failure(
    driver: Driver, client: DynamoClient, operation: str, parameters: Any
) -> StorageUnavailable:
    """Return the failure of a call, which must come long before a hang would."""
    started_s = time.monotonic()
    with pytest.raises(StorageUnavailable) as raised:
        driver.run(client.call(operation, parameters))
    assert time.monotonic() - started_s < _HANG_S
    return raised.value


@BOTH
@pytest.mark.parametrize(
    ("act", "landed"),
    [
        (DropAnswer(), 1),
        (Truncate(), 1),
        (Corrupt(), 1),
        (Reset(), 0),
        (Answer(502, b"<html>Bad Gateway</html>"), 0),
    ],
)
def test_a_lost_answer_is_ambiguous_and_sent_once(
    dynamodb: Server, driver: Driver, connect: Connect, transport: str, act: Act, landed: int
) -> None:
    direct = connect(dynamodb)
    table = driver.run(create_table(direct, driver.io))
    with ChaosProxy(dynamodb.url, [Pass(), act]) as proxy:
        client = connect(dynamodb, proxy.url, PATIENT, transport)
        assert driver.run(_count(client, table)) == 0
        failure = _failure(driver, client, "UpdateItem", _add_one(table))
        assert (failure.retryable, failure.ambiguous) == (True, True)
        assert failure.cause is not None or isinstance(act, Corrupt)
        assert len(proxy.requests) == 2
        # The next call finds a sound connection.
        assert driver.run(_count(client, table)) == landed
    driver.run(direct.call("DeleteTable", {"TableName": table}))


@BOTH
def test_a_request_without_an_answer_in_time_is_ambiguous_and_not_repeated(
    dynamodb: Server, driver: Driver, connect: Connect, transport: str
) -> None:
    direct = connect(dynamodb)
    table = driver.run(create_table(direct, driver.io))
    with ChaosProxy(dynamodb.url) as proxy:
        proxy.use_for(lambda request: Delay(60) if request.operation == "UpdateItem" else Pass())
        client = connect(dynamodb, proxy.url, _IMPATIENT, transport)
        assert driver.run(_count_in_time(client, table)) == 0
        failure = _failure(driver, client, "UpdateItem", _add_one(table))
        assert (failure.retryable, failure.ambiguous) == (True, True)
        assert failure.cause is not None
        assert [request.operation for request, _ in proxy.requests].count("UpdateItem") == 1
        # The next call finds a sound connection.
        assert driver.run(_count_in_time(client, table)) == 1
    driver.run(direct.call("DeleteTable", {"TableName": table}))


@pytest.mark.parametrize("body", [b"<html>Hello</html>", b""])
def test_a_success_that_says_nothing_is_not_believed(
    dynamodb: Server, driver: Driver, connect: Connect, body: bytes
) -> None:
    with ChaosProxy(dynamodb.url, [Answer(200, body)]) as proxy:
        failure = _failure(driver, connect(dynamodb, proxy.url), "ListTables", {})
    assert (failure.retryable, failure.ambiguous) == (True, True)


@BOTH
def test_a_request_on_a_new_connection_that_breaks_is_ambiguous(
    dynamodb: Server, driver: Driver, connect: Connect, transport: str
) -> None:
    with ChaosProxy(dynamodb.url, [Reset()]) as proxy:
        client = connect(dynamodb, proxy.url, PATIENT, transport)
        failure = _failure(driver, client, "ListTables", {})
    assert failure.ambiguous


@BOTH
def test_a_connection_that_is_never_accepted_was_not_sent_on(
    dynamodb: Server, driver: Driver, connect: Connect, transport: str
) -> None:
    with dead_end() as url:
        client = unhurried(connect(dynamodb, url, _IMPATIENT, transport))
        failure = _failure(driver, client, "ListTables", {})
    assert (failure.retryable, failure.ambiguous) == (True, False)
    assert client.meter.requests["ListTables"] == 4


@BOTH
def test_an_unknown_host_was_not_sent_to(
    dynamodb: Server, driver: Driver, connect: Connect, transport: str
) -> None:
    client = connect(dynamodb, "http://no-such-host.invalid:8000", _IMPATIENT, transport)
    failure = _failure(driver, client, "ListTables", {})
    assert (failure.retryable, failure.ambiguous) == (True, False)


def test_waiting_for_a_connection_ends_unsent(
    dynamodb: Server, driver: Driver, connect: Connect
) -> None:
    limits = Limits(connect_timeout_s=0.3, read_timeout_s=60, connections=1)
    released = threading.Event()
    with ChaosProxy(dynamodb.url, [Pass(), Hold(released)]) as proxy:
        client = unhurried(connect(dynamodb, proxy.url, limits))
        driver.run(client.call("ListTables", {}))
        proxy.heard.clear()
        failure = _second_of_two(driver, client, proxy.heard, released)
    assert (failure.retryable, failure.ambiguous) == (True, False)
    assert len(proxy.requests) == 2


def _second_of_two(
    driver: Driver, client: DynamoClient, first_is_out: threading.Event, released: threading.Event
) -> StorageUnavailable:
    """Return the failure of a call while another call holds the only connection."""

    async def both() -> StorageUnavailable:
        first = asyncio.ensure_future(client.call("ListTables", {}))
        await asyncio.to_thread(first_is_out.wait)
        with pytest.raises(StorageUnavailable) as raised:
            await client.call("ListTables", {})
        released.set()
        await first
        return raised.value

    if not driver.blocking:
        failure: StorageUnavailable = driver.run(both())
        return failure
    first = threading.Thread(target=lambda: driver.run(client.call("ListTables", {})))
    first.start()
    first_is_out.wait()
    failure = _failure(driver, client, "ListTables", {})
    released.set()
    first.join()
    return failure


@BOTH
@pytest.mark.parametrize("seed", range(3))
def test_every_reported_outcome_is_true_under_random_faults(
    dynamodb: Server, driver: Driver, connect: Connect, transport: str, seed: int
) -> None:
    direct = connect(dynamodb)
    table = driver.run(create_table(direct, driver.io))
    faults: list[Act] = [DropAnswer(), Truncate(), Corrupt(), Reset(), Answer(503, b"")]
    with ChaosProxy(dynamodb.url, seeded(seed, faults, share=0.4)) as proxy:
        client = connect(dynamodb, proxy.url, PATIENT, transport)
        sure, unknown = driver.run(_write_many(client, table, 30))
    assert sure <= driver.run(_count(direct, table)) <= sure + unknown
    assert unknown > 0
    assert len(proxy.requests) == 30
    driver.run(direct.call("DeleteTable", {"TableName": table}))


async def _write_many(client: DynamoClient, table: str, writes: int) -> tuple[int, int]:
    """Count the writes that surely landed, and the writes that may have."""
    sure = unknown = 0
    for _ in range(writes):
        try:
            await client.call("UpdateItem", _add_one(table))
            sure += 1
        except StorageUnavailable as error:
            unknown += error.ambiguous
    return sure, unknown


def test_connections_are_kept_and_used_again(
    dynamodb: Server, driver: Driver, connect: Connect
) -> None:
    async def in_turn(client: DynamoClient) -> None:
        for _ in range(20):
            await client.call("ListTables", {})

    with ChaosProxy(dynamodb.url) as proxy:
        driver.run(in_turn(connect(dynamodb, proxy.url)))
    assert proxy.connections == 1


def test_a_redirect_is_not_followed(dynamodb: Server, driver: Driver, connect: Connect) -> None:
    elsewhere = Answer(307, b"", {"location": "http://127.0.0.1:1/"})
    with ChaosProxy(dynamodb.url, [elsewhere]) as proxy:
        client = connect(dynamodb, proxy.url)
        failure = _failure(driver, client, "ListTables", {})
    assert (failure.retryable, failure.ambiguous) == (False, False)
    assert len(proxy.requests) == 1


def test_the_path_of_an_endpoint_is_kept(
    dynamodb: Server, driver: Driver, connect: Connect
) -> None:
    with ChaosProxy(dynamodb.url, [Answer(200, b"{}")]) as proxy:
        client = connect(dynamodb, proxy.url + "/a%20b//c/../d/")
        assert driver.run(client.call("ListTables", {})) == {}
    request, _ = proxy.requests[0]
    assert request.path == "/a%20b/d/"
    assert request.headers["host"] == proxy.url.removeprefix("http://")
