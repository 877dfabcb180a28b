"""The WSGI middleware and applications that use every freedom of PEP 3333."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from zae_limiter import Limit, SyncRateLimiter, SyncRepository, ValidationError
from zae_limiter.integrations import Rule, by_address
from zae_limiter.integrations.wsgi import (
    Environ,
    StartResponse,
    WsgiApp,
    WsgiRateLimitMiddleware,
    lease_of_environ,
)

ENVIRON: Environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "REMOTE_ADDR": "192.0.2.1"}


@pytest.fixture
def limiter() -> Iterator[SyncRateLimiter]:
    with SyncRateLimiter(repository=SyncRepository.open(url="memory://")) as opened:
        opened.set_system_defaults([Limit.per_day("requests", 100)])
        yield opened


class Server:
    """A server, as far as the middleware sees it."""

    def __init__(self, limiter: SyncRateLimiter, app: WsgiApp) -> None:
        self.limiter = limiter
        self.app = WsgiRateLimitMiddleware(app, limiter, [Rule("api", key=by_address)])
        self.statuses: list[str] = []
        self.fields: list[tuple[str, str]] = []
        self.written: list[bytes] = []

    def start(self, status: str, headers: Any, exc_info: Any = None) -> Callable[[bytes], object]:
        if self.statuses:
            assert exc_info is not None
        self.statuses.append(status)
        self.fields = headers
        return self.written.append

    def body(self) -> Iterable[bytes]:
        return self.app(dict(ENVIRON), self.start)

    @property
    def charged(self) -> int:
        return 100 - self.limiter.available("ip:192.0.2.1", "api")["requests"]


def streaming(environ: Environ, start: StartResponse) -> Iterator[bytes]:
    """A generator, which starts its response with its first chunk."""
    start("200 OK", [])
    lease = lease_of_environ(environ)
    assert lease is not None
    for _ in range(5):
        yield b""
        lease.adjust(requests=1)
        yield b"chunk"


def test_a_body_that_is_read_to_its_end_is_charged(limiter: SyncRateLimiter) -> None:
    server = Server(limiter, streaming)
    assert b"".join(server.body()) == b"chunk" * 5
    assert (server.statuses, server.charged) == (["200 OK"], 6)


def test_a_body_that_is_closed_early_is_charged_as_far_as_it_went(
    limiter: SyncRateLimiter,
) -> None:
    server = Server(limiter, streaming)
    body = iter(server.body())
    while next(body) != b"chunk":
        pass
    body.close()  # type: ignore[attr-defined]
    assert server.charged == 2


def test_a_response_that_was_never_started_is_not_charged(limiter: SyncRateLimiter) -> None:
    server = Server(limiter, lambda environ, start: [])
    assert b"".join(server.body()) == b""
    assert server.charged == 0


def test_an_application_that_writes_before_it_fails_is_charged(limiter: SyncRateLimiter) -> None:
    def writing(environ: Environ, start: StartResponse) -> Iterable[bytes]:
        start("200 OK", [])(b"written")
        raise LookupError

    server = Server(limiter, writing)
    with pytest.raises(LookupError):
        server.body()
    assert (server.written, server.charged) == ([b"written"], 1)


def test_an_application_that_replaces_its_status_by_500_is_not_charged(
    limiter: SyncRateLimiter,
) -> None:
    def replacing(environ: Environ, start: StartResponse) -> Iterable[bytes]:
        start("200 OK", [])
        try:
            raise LookupError
        except LookupError:
            start("500 Oh No", [], sys.exc_info())
        return [b"sorry"]

    server = Server(limiter, replacing)
    assert b"".join(server.body()) == b"sorry"
    assert (server.statuses, server.charged) == (["500 Oh No"], 0)


def test_a_refusal_after_the_start_replaces_the_status(limiter: SyncRateLimiter) -> None:
    def greedy(environ: Environ, start: StartResponse) -> Iterator[bytes]:
        start("200 OK", [])
        lease = lease_of_environ(environ)
        assert lease is not None
        lease.consume(requests=100)
        yield b"never"

    server = Server(limiter, greedy)
    assert b"quota-exceeded" in b"".join(server.body())
    assert server.statuses == ["429 Too Many Requests"]
    assert server.charged == 0


def test_fields_tell_of_all_that_was_consumed_before_the_first_byte(
    limiter: SyncRateLimiter,
) -> None:
    def consuming(environ: Environ, start: StartResponse) -> Iterator[bytes]:
        start("200 OK", [])
        lease = lease_of_environ(environ)
        assert lease is not None
        lease.consume(requests=9)
        yield b"chunk"

    server = Server(limiter, consuming)
    assert b"".join(server.body()) == b"chunk"
    assert dict(server.fields)["RateLimit"] == '"requests";r=90'


def test_a_second_start_is_refused_unless_there_was_an_error(limiter: SyncRateLimiter) -> None:
    def starting_twice(environ: Environ, start: StartResponse) -> Iterable[bytes]:
        start("200 OK", [])
        start("200 OK", [])
        return [b"never"]

    def starting_late(environ: Environ, start: StartResponse) -> Iterator[bytes]:
        start("200 OK", [])
        yield b"chunk"
        try:
            raise LookupError
        except LookupError:
            start("500 Oh No", [], sys.exc_info())

    server = Server(limiter, starting_twice)
    with pytest.raises(AssertionError, match="called twice"):
        server.body()
    assert (server.statuses, server.charged) == ([], 0)
    late = Server(limiter, starting_late)
    assert b"".join(late.body()) == b"chunk"
    assert (late.statuses, late.charged) == (["200 OK", "500 Oh No"], 1)


def test_a_lease_without_the_middleware_names_what_to_add() -> None:
    with pytest.raises(ValidationError, match="has no WsgiRateLimitMiddleware"):
        lease_of_environ(dict(ENVIRON))
