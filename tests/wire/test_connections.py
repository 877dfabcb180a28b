"""Connections are kept alive or closed, and a request that one of them carried is safe or lost."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.support.scripted import Said, scripted
from tests.support.servers.authority import loopback_tls
from tests.support.servers.chaos import ChaosProxy, Hold, Pass, closed_door, dead_end
from tests.support.servers.processes import Server
from tests.support.servers.tables import PATIENT
from tests.support.transports import BOTH, unhurried
from tests.support.wire_drivers import Driver
from zae_limiter.backends.dynamodb.wire import sockets
from zae_limiter.backends.dynamodb.wire.client import DynamoClient
from zae_limiter.backends.dynamodb.wire.connect import open_client
from zae_limiter.backends.dynamodb.wire.edge import Limits
from zae_limiter.core.exceptions import StorageUnavailable
from zae_limiter.runtime.asyncio_driver import AsyncioIo
from zae_limiter.runtime.blocking import BlockingIo, run

from .conftest import Connect, act_as_caller_of

_FEW = Limits(connect_timeout_s=60, read_timeout_s=60, connections=2)
_EMPTY = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
_CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"
_LAST = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"
_UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\n\r\n{}"
_OLD = b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}"
_CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + _EMPTY


def _ask(driver: Driver, client: DynamoClient) -> Any:
    return driver.run(client.call("ListTables", {}))


def _failure(driver: Driver, client: DynamoClient) -> StorageUnavailable:
    with pytest.raises(StorageUnavailable) as raised:
        _ask(driver, client)
    return raised.value


@pytest.mark.parametrize("answer", [_EMPTY, _CHUNKED, _CONTINUED])
def test_an_answer_that_ends_leaves_the_connection_open(
    dynamodb: Server, driver: Driver, connect: Connect, answer: bytes
) -> None:
    with scripted([answer, answer, answer]) as server:
        client = connect(dynamodb, server.url, _FEW)
        assert [_ask(driver, client) for _ in range(3)] == [{}] * 3
    assert server.heard == [3]


@pytest.mark.parametrize("answer", [_LAST, _UNTIL_CLOSED, _OLD])
def test_an_answer_that_is_the_last_one_leaves_no_connection(
    dynamodb: Server, driver: Driver, connect: Connect, answer: bytes
) -> None:
    with scripted([answer], [answer]) as server:
        client = connect(dynamodb, server.url, _FEW)
        assert [_ask(driver, client) for _ in range(2)] == [{}] * 2
    assert server.heard == [1, 1]


def test_a_connection_that_was_closed_while_idle_is_replaced_unnoticed(
    dynamodb: Server, driver: Driver, connect: Connect
) -> None:
    """The event loop is blocked while the server closes, so it has no time to notice."""
    with scripted([_EMPTY], [_EMPTY], [_EMPTY, _EMPTY]) as server:
        client = connect(dynamodb, server.url, _FEW, "wire")

        async def ask_and_ask_again() -> list[Any]:
            first = await client.call("ListTables", {})
            server.wait_until_closed()
            return [first, await client.call("ListTables", {})]

        assert driver.run(ask_and_ask_again()) == [{}] * 2
        server.wait_until_closed()
        assert driver.run(ask_and_ask_again_later(client, driver)) == [{}] * 2
    assert server.heard == [1, 1, 2]
    assert client.meter.requests["ListTables"] == 4


async def ask_and_ask_again_later(client: DynamoClient, driver: Driver) -> list[Any]:
    await driver.io.sleep(0.05)
    return [await client.call("ListTables", {}) for _ in range(2)]


def test_a_kept_connection_that_ends_after_the_request_is_ambiguous(
    dynamodb: Server, driver: Driver, connect: Connect
) -> None:
    """The client cannot know whether the server closed before or after it acted."""
    with scripted([_EMPTY, b""], [_EMPTY]) as server:
        client = connect(dynamodb, server.url, _FEW, "wire")
        _ask(driver, client)
        failure = _failure(driver, client)
        assert (failure.retryable, failure.ambiguous) == (True, True)
        assert _ask(driver, client) == {}
    assert server.heard == [2, 1]


@pytest.mark.parametrize(
    "answer",
    [
        b"220 mail.example ESMTP\r\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2, 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-le",
    ],
)
def test_a_broken_answer_is_ambiguous_and_leaves_no_connection(
    dynamodb: Server, driver: Driver, connect: Connect, answer: bytes
) -> None:
    with scripted([answer], [_EMPTY]) as server:
        client = connect(dynamodb, server.url, _FEW)
        failure = _failure(driver, client)
        assert (failure.retryable, failure.ambiguous) == (True, True)
        assert _ask(driver, client) == {}
    assert server.heard == [1, 1]


def test_a_connection_that_says_more_than_it_was_asked_is_left(
    dynamodb: Server, driver: Driver, connect: Connect
) -> None:
    with scripted([_EMPTY + b"HTTP/1.1 408 Too Late\r\n\r\n"], [_EMPTY]) as server:
        client = connect(dynamodb, server.url, _FEW, "wire")
        assert [_ask(driver, client) for _ in range(2)] == [{}] * 2
    assert server.heard == [1, 1]


def test_a_slow_answer_is_waited_for_as_long_as_it_shows_life(
    dynamodb: Server, driver: Driver, connect: Connect
) -> None:
    slow = Said([_EMPTY[n : n + 7] for n in range(0, len(_EMPTY), 7)], before_each_s=0.4)
    limits = Limits(connect_timeout_s=60, read_timeout_s=2)
    assert len(slow.pieces) * slow.before_each_s > limits.read_timeout_s
    with scripted([_EMPTY, slow]) as server:
        client = connect(dynamodb, server.url, limits)
        assert [_ask(driver, client) for _ in range(2)] == [{}] * 2


def test_large_requests_and_answers_come_through(
    dynamodb: Server, driver: Driver, connect: Connect
) -> None:
    body = b'{"x":"' + b"y" * 8_000_000 + b'"}'
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    with scripted([answer, _EMPTY]) as server:
        client = connect(dynamodb, server.url, PATIENT)
        request = {"TableName": "z" * 1_000_000}
        assert driver.run(client.call("ListTables", request)) == {"x": "y" * 8_000_000}
        assert _ask(driver, client) == {}
    assert server.heard == [2]


def test_a_connection_that_was_idle_for_long_is_not_trusted(
    dynamodb: Server, driver: Driver, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "_KEPT_IDLE_S", 0)
    with ChaosProxy(dynamodb.url) as proxy:
        client = connect(dynamodb, proxy.url, _FEW, "wire")
        for _ in range(3):
            assert "TableNames" in _ask(driver, client)
    assert proxy.connections == 3


def test_every_address_of_a_host_is_tried(
    dynamodb: Server,
    driver: Driver,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with scripted([_EMPTY]) as server, closed_door() as nobody:
        closed, port = (int(url.rpartition(":")[2]) for url in (nobody, server.url))
        kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        found = [(*kind, ("127.0.0.1", closed)), (*kind, ("127.0.0.1", port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        client = connect(dynamodb, f"http://two.invalid:{port}", _FEW)
        assert _ask(driver, client) == {}


def test_credentials_that_would_break_the_request_are_not_sent(
    dynamodb: Server,
    driver: Driver,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ChaosProxy(dynamodb.url) as proxy:
        client = connect(dynamodb, proxy.url, _FEW)
        monkeypatch.setenv("AWS_SESSION_TOKEN", "token\r\nx-amz-target: other")
        with pytest.raises((StorageUnavailable, ValueError)):
            _ask(driver, client)
    assert proxy.requests == []


def test_a_server_that_never_shakes_hands_was_not_sent_to(
    dynamodb: Server,
    driver: Driver,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    _, trusted = loopback_tls(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(trusted))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        client = unhurried(connect(dynamodb, url, Limits(connect_timeout_s=0.2), "wire"))
        failure = _failure(driver, client)
    assert (failure.retryable, failure.ambiguous) == (True, False)
    assert client.meter.requests["ListTables"] == 4
    gc.collect()


@BOTH
async def test_a_call_that_is_cancelled_under_way_is_not_abandoned(
    dynamodb: Server, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller must know the outcome of a call before it can undo the call."""
    act_as_caller_of(dynamodb, monkeypatch)
    released = threading.Event()
    with ChaosProxy(dynamodb.url, [Pass(), Hold(released)]) as proxy:
        client = open_client(
            AsyncioIo(),
            transport=transport,
            blocking=False,
            region=dynamodb.region,
            endpoint_url=proxy.url,
        )
        await client.call("ListTables", {})
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await client.call("ListTables", {}))
            await asyncio.sleep(0)
            answers.append("went on")

        task = asyncio.ensure_future(ask())
        await asyncio.to_thread(_wait_for, lambda: len(proxy.requests) == 2)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0.02)
        assert not task.done()
        released.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [sorted(answer) for answer in answers] == [["TableNames"]]
        assert "TableNames" in await client.call("ListTables", {})
        await client.close()
    assert proxy.connections == 1


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


async def test_a_call_that_is_cancelled_before_it_is_sent_is_given_up(
    dynamodb: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    act_as_caller_of(dynamodb, monkeypatch)
    with dead_end() as url:
        client = open_client(
            AsyncioIo(), blocking=False, region="us-east-1", endpoint_url=url, limits=PATIENT
        )
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await client.call("ListTables", {})
        await client.close()


def test_a_call_that_is_interrupted_leaves_no_connection(
    dynamodb: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The late answer to an interrupted call must not be taken for the next answer."""
    act_as_caller_of(dynamodb, monkeypatch)
    released = threading.Event()
    with ChaosProxy(dynamodb.url, [Pass(), Hold(released)]) as proxy:
        client = open_client(
            BlockingIo(),
            blocking=True,
            region=dynamodb.region,
            endpoint_url=proxy.url,
        )
        run(client.call("ListTables", {}))
        with _interrupted(lambda: len(proxy.requests) == 2):
            run(client.call("ListTables", {}))
        released.set()
        assert "TableNames" in run(client.call("ListTables", {}))
        run(client.close())
    assert proxy.connections == 2


@contextmanager
def _interrupted(is_under_way: Callable[[], bool]) -> Iterator[None]:
    """Interrupt a block in the middle, as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def kill_in_time(thread_id: int) -> None:
        _wait_for(is_under_way)
        signal.pthread_kill(thread_id, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    killer = threading.Thread(target=kill_in_time, args=(threading.get_ident(),))
    killer.start()
    with pytest.raises(KeyboardInterrupt):
        yield
    killer.join()
    signal.signal(signal.SIGUSR1, before)


def test_closing_lets_a_call_finish_and_keeps_nothing(
    dynamodb: Server, driver: Driver, connect: Connect
) -> None:
    released = threading.Event()
    with ChaosProxy(dynamodb.url, [Hold(released)]) as proxy:
        client = connect(dynamodb, proxy.url, PATIENT, "wire")
        answer = _close_under_way(driver, client, proxy.heard, released)
        assert "TableNames" in answer
        # The client refuses by now; its transport would have to connect again.
        assert "TableNames" in driver.run(client._transport.exchange("ListTables", {}))
    assert proxy.connections == 2


def _close_under_way(
    driver: Driver, client: DynamoClient, heard: threading.Event, released: threading.Event
) -> Any:
    async def close() -> Any:
        task = asyncio.ensure_future(client.call("ListTables", {}))
        await asyncio.to_thread(heard.wait)
        await client.close()
        released.set()
        return await task

    if not driver.blocking:
        return driver.run(close())
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(_ask(driver, client)))
    thread.start()
    heard.wait()
    driver.run(client.close())
    released.set()
    thread.join()
    return answers[0]


def test_a_client_that_is_forgotten_leaves_no_socket_open(
    dynamodb: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python warns of an open socket, and warnings are errors here."""
    act_as_caller_of(dynamodb, monkeypatch)
    place: dict[str, Any] = {"region": dynamodb.region, "endpoint_url": dynamodb.url}
    client = open_client(BlockingIo(), blocking=True, **place)
    run(client.call("ListTables", {}))
    del client
    gc.collect()
