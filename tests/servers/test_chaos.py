from __future__ import annotations

import http.client
import itertools
from urllib.parse import urlsplit

import pytest

from tests.support.servers.chaos import (
    INTERNAL_ERROR,
    THROTTLED,
    Act,
    ChaosProxy,
    Corrupt,
    Delay,
    DropAnswer,
    Pass,
    Reset,
    Truncate,
    dead_end,
    seeded,
)

_HELLO = THROTTLED


class _Visitor:
    """Sends requests over one connection at a time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.connection = http.client.HTTPConnection(parts.netloc, timeout=5)

    def ask(self) -> tuple[int, bytes]:
        self.connection.request("POST", "/", b"hello")
        response = self.connection.getresponse()
        return response.status, response.read()


@pytest.mark.parametrize("act", [Pass(), Delay(0.01)])
def test_the_answer_comes_back_and_the_connection_stays(act: Act) -> None:
    with ChaosProxy("http://127.0.0.1:1", [_HELLO] * 2) as server:
        with ChaosProxy(server.url, [act, act]) as proxy:
            visitor = _Visitor(proxy.url)
            assert [visitor.ask(), visitor.ask()] == [(400, _HELLO.body)] * 2
            visitor.connection.close()
        assert (proxy.connections, len(proxy.requests), len(server.requests)) == (1, 2, 2)


@pytest.mark.parametrize(("act", "heard"), [(DropAnswer(), 1), (Truncate(), 1), (Reset(), 0)])
def test_the_connection_breaks_before_or_after_the_server_heard(act: Act, heard: int) -> None:
    server = ChaosProxy("http://127.0.0.1:1", [_HELLO] * 2)
    with server, ChaosProxy(server.url, [act]) as proxy:
        visitor = _Visitor(proxy.url)
        with pytest.raises((OSError, http.client.HTTPException)):
            visitor.ask()
        visitor.connection.close()
        assert len(server.requests) == heard
        assert visitor.ask() == (400, _HELLO.body)
        visitor.connection.close()


def test_a_corrupt_answer_differs() -> None:
    server = ChaosProxy("http://127.0.0.1:1", [_HELLO])
    with server, ChaosProxy(server.url, [Corrupt()]) as proxy:
        visitor = _Visitor(proxy.url)
        status, body = visitor.ask()
        visitor.connection.close()
    assert status == 400
    assert body != _HELLO.body
    assert len(body) == len(_HELLO.body)


def test_an_answer_of_its_own_never_reaches_the_server() -> None:
    with ChaosProxy("http://127.0.0.1:1", [INTERNAL_ERROR]) as proxy:
        visitor = _Visitor(proxy.url)
        assert visitor.ask() == (500, INTERNAL_ERROR.body)
        proxy.use([THROTTLED])
        assert visitor.ask() == (400, THROTTLED.body)
        visitor.connection.close()


def test_one_seed_always_makes_one_plan() -> None:
    acts: list[Act] = [Reset(), DropAnswer()]

    def plan(seed: int, share: float) -> list[Act]:
        return list(itertools.islice(seeded(seed, acts, share), 50))

    assert plan(1, 0.5) == plan(1, 0.5)
    assert plan(1, 0.5) != plan(2, 0.5)
    assert set(plan(1, 0.5)) == {Pass(), Reset(), DropAnswer()}
    assert set(plan(1, 0)) == {Pass()}


def test_nobody_gets_into_a_dead_end() -> None:
    with dead_end() as url:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=0.2)
        with pytest.raises(TimeoutError):
            connection.connect()
