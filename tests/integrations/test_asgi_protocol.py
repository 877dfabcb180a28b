"""The ASGI middleware and applications that use every freedom of the protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.servers.processes import start
from zae_limiter import Limit, OnUnavailable, RateLimiter, Repository, ValidationError
from zae_limiter.backends.dynamodb.url import dynamodb_url
from zae_limiter.integrations import Rule, by_address
from zae_limiter.integrations.asgi import (
    AsgiApp,
    AsgiScope,
    Message,
    RateLimitMiddleware,
    Receive,
    Send,
    lease_of_scope,
)

START: Message = {"type": "http.response.start", "status": 200}
CHUNK: Message = {"type": "http.response.body", "body": b"chunk", "more_body": True}
END: Message = {"type": "http.response.body"}
RULES = [Rule("api", key=by_address)]


@pytest.fixture
async def limiter() -> AsyncIterator[RateLimiter]:
    async with RateLimiter(repository=await Repository.open(url="memory://")) as opened:
        await opened.set_system_defaults([Limit.per_day("requests", 100)])
        yield opened


class Connection:
    """A server's side of one connection: the client says what it has to, then leaves."""

    def __init__(self, kind: str = "http", *, extensions: tuple[str, ...] = ()) -> None:
        self.scope: AsgiScope = {
            "type": kind,
            "path": "/",
            "headers": [],
            "client": ("192.0.2.1", 5),
            "extensions": {name: {} for name in extensions},
        }
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        await asyncio.sleep(0)
        return {"type": f"{self.scope['type']}.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def call(self, app: AsgiApp, limiter: Any, rules: list[Rule] = RULES) -> list[Message]:
        await RateLimitMiddleware(app, limiter, rules)(self.scope, self.receive, self.send)
        return self.sent


async def charged(limiter: RateLimiter) -> int:
    return 100 - (await limiter.available("ip:192.0.2.1", "api"))["requests"]


async def test_a_client_that_leaves_before_the_first_byte_is_charged(limiter: RateLimiter) -> None:
    async def returns(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await send(START)
        await receive()

    async def raises(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await receive()
        raise ConnectionResetError

    async def returns_nothing(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await receive()

    assert await Connection().call(returns, limiter) == []
    assert await Connection().call(returns_nothing, limiter) == []
    with pytest.raises(ConnectionResetError):
        await Connection().call(raises, limiter)
    assert await charged(limiter) == 3


async def test_an_application_that_is_cancelled_before_the_first_byte_is_not_charged(
    limiter: RateLimiter,
) -> None:
    reached = asyncio.Event()

    async def waits(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await send(START)
        reached.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(Connection().call(waits, limiter))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await charged(limiter) == 0


async def test_an_application_that_is_cancelled_later_is_charged_as_far_as_it_went(
    limiter: RateLimiter,
) -> None:
    reached = asyncio.Event()

    async def waits(scope: AsgiScope, receive: Receive, send: Send) -> None:
        lease = lease_of_scope(scope)
        assert lease is not None
        await send(START)
        await lease.adjust(requests=6)
        await send(CHUNK)
        reached.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(Connection().call(waits, limiter))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await charged(limiter) == 7


async def test_an_error_after_the_last_byte_changes_no_charge(limiter: RateLimiter) -> None:
    async def fails_in_the_background(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await send(START)
        await send(END)
        raise LookupError

    connection = Connection()
    with pytest.raises(LookupError):
        await connection.call(fails_in_the_background, limiter)
    assert [message["type"] for message in connection.sent] == [START["type"], END["type"]]
    assert await charged(limiter) == 1


async def test_nested_middleware_charges_by_the_rules_of_both(limiter: RateLimiter) -> None:
    async def answers(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await send({**START, "status": scope["status"]})
        await send(END)

    inner = RateLimitMiddleware(answers, limiter, [Rule("inner", limits="1/day")])
    for status, expected, left in ((503, 503, 0), (200, 200, 1), (200, 429, 2)):
        connection = Connection()
        connection.scope["status"] = status
        sent = await connection.call(inner, limiter)
        assert (sent[0]["status"], await charged(limiter)) == (expected, left)


async def test_corrections_are_written_before_the_last_byte_is_sent(limiter: RateLimiter) -> None:
    seen: list[int] = []

    async def adjusts(scope: AsgiScope, receive: Receive, send: Send) -> None:
        lease = lease_of_scope(scope)
        assert lease is not None
        for message in (START, CHUNK):
            await send(message)
        await lease.adjust(requests=4)
        await send(END)

    class Watching(Connection):
        async def send(self, message: Message) -> None:
            seen.append(await charged(limiter))

    await Watching().call(adjusts, limiter)
    assert seen == [1, 1, 5]


async def test_an_empty_chunk_does_not_begin_a_response(limiter: RateLimiter) -> None:
    async def fails(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await send(START)
        await send({**CHUNK, "body": b""})
        raise LookupError

    connection = Connection()
    with pytest.raises(LookupError):
        await connection.call(fails, limiter)
    assert (connection.sent, await charged(limiter)) == ([], 0)


async def test_a_refusal_that_comes_alone_in_a_group_is_answered(limiter: RateLimiter) -> None:
    async def groups(scope: AsgiScope, receive: Receive, send: Send) -> None:
        lease = lease_of_scope(scope)
        assert lease is not None
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(lease.consume(requests=100))

    sent = await Connection().call(groups, limiter)
    assert (sent[0]["status"], await charged(limiter)) == (429, 0)


async def accepts(scope: AsgiScope, receive: Receive, send: Send) -> None:
    await send({"type": "websocket.accept"})
    await receive()


@pytest.mark.parametrize("extension", ["websocket.http.response", "other"])
async def test_a_websocket_is_refused_as_its_server_can(
    limiter: RateLimiter, extension: str
) -> None:
    rules = [Rule("api", limits="1/day", key=by_address)]
    await Connection("websocket").call(accepts, limiter, rules)
    sent = await Connection("websocket", extensions=(extension,)).call(accepts, limiter, rules)
    if extension == "other":
        assert sent == [{"type": "websocket.close", "code": 1008}]
    else:
        assert [message["type"] for message in sent] == [
            "websocket.http.response.start",
            "websocket.http.response.body",
        ]
        assert sent[0]["status"] == 429


async def test_other_kinds_of_scopes_pass(limiter: RateLimiter) -> None:
    async def lives(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await send({"type": scope["type"]})

    def no_limiter(scope: AsgiScope) -> RateLimiter:
        raise AssertionError("a lifespan needs no limiter")

    assert await Connection("lifespan").call(lives, no_limiter) == [{"type": "lifespan"}]


def test_a_lease_without_the_middleware_names_what_is_missing() -> None:
    with pytest.raises(ValidationError, match="has no RateLimitMiddleware"):
        lease_of_scope(Connection().scope)


@pytest.fixture
async def doomed(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[RateLimiter, ExitStack]]:
    """A limiter on a server, and the stack that ends the server when it is closed."""
    with ExitStack() as stack:
        server = stack.enter_context(start("dynoxide"))
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key or "")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_key or "")
        url = dynamodb_url("limits", server.region, server.url)
        async with RateLimiter(repository=await Repository.open(url=url)) as limiter:
            await limiter.set_system_defaults([Limit.per_day("requests", 100)])
            yield limiter, stack


async def test_a_store_that_is_down_is_503(doomed: tuple[RateLimiter, ExitStack]) -> None:
    limiter, server = doomed
    server.close()
    sent = await Connection().call(accepts, limiter)
    assert sent[0]["status"] == 503
    assert dict(sent[0]["headers"])[b"retry-after"] == b"1"
    assert json.loads(sent[1]["body"])["type"].endswith("temporary-reduced-capacity")


async def test_a_response_is_complete_although_its_correction_is_lost(
    doomed: tuple[RateLimiter, ExitStack], caplog: pytest.LogCaptureFixture
) -> None:
    limiter, server = doomed

    async def outlives(scope: AsgiScope, receive: Receive, send: Send) -> None:
        lease = lease_of_scope(scope)
        assert lease is not None
        await send(START)
        await send(CHUNK)
        server.close()
        await lease.adjust(requests=4)
        await send(END)

    sent = await Connection().call(outlives, limiter)
    assert [message["type"] for message in sent] == [START["type"], CHUNK["type"], END["type"]]
    assert "Correction failed, the charge stays as it was: +4 requests" in caplog.text


async def test_an_error_surfaces_although_its_refund_is_lost(
    doomed: tuple[RateLimiter, ExitStack], caplog: pytest.LogCaptureFixture
) -> None:
    limiter, server = doomed

    async def fails(scope: AsgiScope, receive: Receive, send: Send) -> None:
        server.close()
        raise LookupError

    with pytest.raises(LookupError):
        await Connection().call(fails, limiter)
    assert "Refund failed, the tokens stay charged: -1 requests" in caplog.text


async def test_an_outage_lets_calls_pass_without_fields_if_that_is_wanted(
    doomed: tuple[RateLimiter, ExitStack],
) -> None:
    limiter, server = doomed
    allowing = RateLimiter(limiter.repository, on_unavailable=OnUnavailable.ALLOW)
    server.close()

    async def answers(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await send(START)
        await send(END)

    sent = await Connection().call(answers, allowing)
    assert (sent[0]["status"], sent[0]["headers"]) == (200, [])
