"""Clients reach DynamoDB through real proxies, on both edges."""

from __future__ import annotations

import asyncio
import gc
import ssl
import threading
import time
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.scripted import Said, scripted
from tests.support.servers.authority import loopback_tls
from tests.support.servers.chaos import Answer, ChaosProxy, DropAnswer, Pass, Reset, closed_door
from tests.support.servers.processes import Server
from tests.support.servers.tables import PATIENT
from tests.support.servers.tunnel import SILENCE, Says, refusal, tunnel
from tests.support.transports import unhurried
from tests.support.wire_drivers import Driver
from zae_limiter.backends.dynamodb.wire.client import DynamoClient
from zae_limiter.backends.dynamodb.wire.edge import Limits
from zae_limiter.core.exceptions import StorageUnavailable, ValidationError

from .conftest import Connect

_ABOVE = Answer(200, b"{}")
_PASSWORD = "s:cr@t/é"
_USERINFO = "us%40er:s%3Acr%40t%2F%C3%A9"
_BASIC = f"Basic {b64encode(f'us@er:{_PASSWORD}'.encode()).decode()}"
_IMPATIENT = Limits(connect_timeout_s=0.5, read_timeout_s=60)
_EMPTY = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
_OPEN = b"HTTP/1.1 200 Connected\r\n\r\n"
# Far above the connect timeouts here: only a hang reaches it.
_HANG_S = 25.0


@dataclass(frozen=True, slots=True)
class Way:
    """A way to DynamoDB has a driver, the TLS of servers that are trusted, and a proxy's TLS."""

    dynamodb: Server
    driver: Driver
    connect: Connect
    tls: ssl.SSLContext
    proxy_tls: ssl.SSLContext | None
    patch: pytest.MonkeyPatch

    def client(
        self, proxy_url: str, url: str, limits: Limits | None = None, userinfo: str = ""
    ) -> DynamoClient:
        """Open a client of an endpoint behind a proxy."""
        proxy_url = proxy_url.replace("://", f"://{userinfo}@") if userinfo else proxy_url
        for name in ("HTTP_PROXY", "HTTPS_PROXY"):
            self.patch.setenv(name, proxy_url)
        return self.connect(self.dynamodb, url, limits)

    def ask(self, client: DynamoClient) -> Any:
        return self.driver.run(client.call("ListTables", {}))

    def failure(self, client: DynamoClient) -> StorageUnavailable:
        """Return the failure of a call, which must come long before a hang would."""
        began_s = time.monotonic()
        with pytest.raises(StorageUnavailable) as raised:
            self.ask(client)
        assert time.monotonic() - began_s < _HANG_S
        gc.collect()
        return raised.value

    def close(self, client: DynamoClient) -> None:
        self.driver.run(client.close())


@pytest.fixture(params=["http", "https"])
def scheme(request: pytest.FixtureRequest) -> str:
    """Return the scheme of the proxy's URL."""
    return str(request.param)


@pytest.fixture
def way(
    dynamodb: Server,
    driver: Driver,
    connect: Connect,
    scheme: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Way:
    """Hide the machine's own proxy settings: loopback is proxied too here."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    tls, trusted = loopback_tls(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(trusted))
    proxy_tls = tls if scheme == "https" else None
    return Way(dynamodb, driver, connect, tls, proxy_tls, monkeypatch)


PLAIN = pytest.mark.parametrize("scheme", ["http"])


def test_a_plain_endpoint_is_asked_for_by_its_whole_url(way: Way) -> None:
    with ChaosProxy(way.dynamodb.url, [_ABOVE] * 3, way.proxy_tls) as proxy:
        client = way.client(proxy.url, "http://db.invalid:8000/x", userinfo=_USERINFO)
        assert [way.ask(client) for _ in range(3)] == [{}] * 3
        way.close(client)
    assert proxy.connections == 1
    for request, _ in proxy.requests:
        assert (request.method, request.path) == ("POST", "http://db.invalid:8000/x")
        assert request.headers["host"] == "db.invalid:8000"
        assert request.headers["proxy-authorization"] == _BASIC


@PLAIN
def test_a_proxy_without_credentials_gets_none(way: Way) -> None:
    with ChaosProxy(way.dynamodb.url, [_ABOVE]) as proxy:
        assert way.ask(way.client(proxy.url.removeprefix("http://"), "http://db.invalid")) == {}
    assert "proxy-authorization" not in proxy.requests[0][0].headers


@PLAIN
def test_hosts_of_no_proxy_are_reached_directly(way: Way) -> None:
    way.patch.setenv("NO_PROXY", "127.0.0.1")
    with closed_door() as nobody, ChaosProxy(way.dynamodb.url, [_ABOVE]) as server:
        client = way.client(nobody, server.url)
        assert way.ask(client) == {}
        way.close(client)
    assert len(server.requests) == 1


@pytest.mark.parametrize("userinfo", ["", _USERINFO], ids=["anonymous", "password"])
def test_tls_goes_through_one_tunnel_that_is_kept(way: Way, userinfo: str) -> None:
    with ChaosProxy(way.dynamodb.url, tls=way.tls) as server, tunnel(tls=way.proxy_tls) as proxy:
        client = way.client(proxy.url, server.url, userinfo=userinfo)
        for _ in range(3):
            assert "TableNames" in way.ask(client)
        way.close(client)
    address = server.url.removeprefix("https://")
    assert proxy.asked == [f"CONNECT {address}"]
    assert proxy.requests[0].headers["host"] == address
    assert proxy.requests[0].headers.get("proxy-authorization") == (_BASIC if userinfo else None)
    for request, _ in server.requests:
        assert request.path == "/"
        assert "proxy-authorization" not in request.headers


def test_large_requests_and_answers_come_through_a_tunnel(way: Way) -> None:
    large = Answer(200, b'{"x":"' + b"y" * 3_000_000 + b'"}')
    with (
        ChaosProxy(way.dynamodb.url, [large, _ABOVE], way.tls) as server,
        tunnel(tls=way.proxy_tls) as proxy,
    ):
        client = way.client(proxy.url, server.url, PATIENT)
        request = {"TableName": "z" * 1_000_000}
        assert way.driver.run(client.call("ListTables", request)) == {"x": "y" * 3_000_000}
        assert way.ask(client) == {}
        way.close(client)
    assert len(server.requests[0][0].body) > 1_000_000
    assert len(proxy.asked) == 1


def test_a_tunnel_that_was_closed_while_idle_is_replaced_unnoticed(way: Way) -> None:
    with ChaosProxy(way.dynamodb.url, tls=way.tls) as server, tunnel(tls=way.proxy_tls) as proxy:
        client = way.client(proxy.url, server.url, PATIENT)

        async def ask_across_a_cut() -> list[Any]:
            first = await client.call("ListTables", {})
            proxy.cut()
            return [first, await client.call("ListTables", {})]

        assert all("TableNames" in each for each in way.driver.run(ask_across_a_cut()))
        way.close(client)
    assert len(proxy.asked) == 2
    assert client.meter.requests["ListTables"] == 2


@pytest.mark.parametrize("act", [DropAnswer(), Reset()])
def test_a_tunnel_that_breaks_after_the_request_is_ambiguous(
    way: Way, act: DropAnswer | Reset
) -> None:
    with (
        ChaosProxy(way.dynamodb.url, [Pass(), act], way.tls) as server,
        tunnel(tls=way.proxy_tls) as proxy,
    ):
        client = way.client(proxy.url, server.url, PATIENT)
        assert "TableNames" in way.ask(client)
        failure = way.failure(client)
        assert (failure.retryable, failure.ambiguous) == (True, True)
        assert "TableNames" in way.ask(client)
        way.close(client)
    assert len(proxy.asked) == 2


@pytest.mark.parametrize(
    ("status", "retryable"),
    [(302, False), (403, False), (407, False), (429, True), (502, True), (503, True)],
)
def test_a_tunnel_that_is_refused_has_carried_nothing(
    way: Way, status: int, retryable: bool
) -> None:
    with tunnel(*[refusal(status)] * 4, tls=way.proxy_tls) as proxy:
        client = unhurried(way.client(proxy.url, "https://db.invalid", userinfo=_USERINFO))
        failure = way.failure(client)
        way.close(client)
    assert (failure.retryable, failure.ambiguous) == (retryable, False)
    assert f"status {status}" in str(failure)
    assert f"db.invalid through the proxy {proxy.address}" in str(failure)
    assert proxy.asked == ["CONNECT db.invalid:443"] * (4 if retryable else 1)
    _assert_hidden(failure)


def _assert_hidden(failure: StorageUnavailable) -> None:
    shown = repr([failure, failure.cause, failure.__context__, str(failure)])
    for secret in (_PASSWORD, _USERINFO, _BASIC, _BASIC.removeprefix("Basic ")):
        assert secret not in shown


@PLAIN
def test_a_passing_refusal_is_retried_until_the_tunnel_opens(way: Way) -> None:
    with (
        ChaosProxy(way.dynamodb.url, tls=way.tls) as server,
        tunnel(refusal(502), refusal(503)) as proxy,
    ):
        client = unhurried(way.client(proxy.url, server.url))
        assert "TableNames" in way.ask(client)
        way.close(client)
    assert len(proxy.asked) == 3


_HUGE = [b"HTTP/1.1 200 OK\r\n"] + [b"x-more: " + b"y" * 8000 + b"\r\n"] * 20


@pytest.mark.parametrize(
    ("says", "retryable"),
    [
        (Says(), True),
        (Says([b"HTTP/1.1 20"]), True),
        (Says([b"HTTP/1.1 200 OK\r\nvia: x\r\n"]), True),
        (Says([_OPEN]), True),
        (Says([b"220 mail.example ESMTP\r\n\r\n"]), False),
        (Says([b"HTTP/1.1 200 OK\r\nno header\r\n\r\n"]), False),
        (Says([_OPEN + b"and more"]), False),
        (Says(_HUGE, closes=False), False),
        (Says([b"HTTP/1.1 100 Continue\r\n\r\n" * 100] * 40, closes=False), False),
    ],
    ids=[
        "closes at once",
        "closes in a line",
        "closes in the head",
        "closes in the handshake",
        "other protocol",
        "broken header",
        "says too much",
        "huge head",
        "endless interim answers",
    ],
)
def test_a_proxy_that_breaks_off_or_is_not_understood_has_carried_nothing(
    way: Way, says: Says, retryable: bool
) -> None:
    with tunnel(*[says] * 4, tls=way.proxy_tls) as proxy:
        client = unhurried(way.client(proxy.url, "https://db.invalid", PATIENT, userinfo=_USERINFO))
        failure = way.failure(client)
        way.close(client)
    assert (failure.retryable, failure.ambiguous) == (retryable, False)
    assert len(proxy.asked) == (4 if retryable else 1)
    _assert_hidden(failure)


_DRIP = Says([bytes([each]) for each in _OPEN[:-1]] * 40, before_each_s=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "says", [SILENCE, _DRIP, Says([_OPEN], closes=False)], ids=["silent", "drips", "no handshake"]
)
def test_a_proxy_that_takes_too_long_is_given_up_within_the_connect_timeout(
    way: Way, says: Says
) -> None:
    with tunnel(*[says] * 8, tls=way.proxy_tls) as proxy:
        client = unhurried(way.client(proxy.url, "https://db.invalid", _IMPATIENT))
        began_s = time.monotonic()
        failure = way.failure(client)
        # Far above any short timeout here: only a proxy that is waited for reaches it.
        assert time.monotonic() - began_s < 30
        way.close(client)
    assert (failure.retryable, failure.ambiguous) == (True, False)
    assert client.meter.requests["ListTables"] == 4


@PLAIN
def test_a_proxy_that_is_not_there_was_not_sent_to(way: Way) -> None:
    for scheme in ("http", "https"):
        with closed_door() as nobody:
            failure = way.failure(way.client(nobody, f"{scheme}://db.invalid", userinfo=_USERINFO))
        assert (failure.retryable, failure.ambiguous) == (True, False)
        _assert_hidden(failure)


def _other_tls(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Make TLS of a server that the client does not trust, and the file that would change that."""
    (folder / "other").mkdir()
    return loopback_tls(folder / "other")


def test_an_endpoint_with_a_foreign_certificate_is_not_trusted_through_a_tunnel(
    way: Way, tmp_path: Path
) -> None:
    foreign, _ = _other_tls(tmp_path)
    with (
        ChaosProxy(way.dynamodb.url, tls=foreign) as server,
        tunnel(tls=way.proxy_tls) as proxy,
    ):
        client = way.client(proxy.url, server.url, PATIENT)
        failure = way.failure(client)
        way.close(client)
    assert (failure.retryable, failure.ambiguous) == (False, False)
    assert "certificate" in str(failure)
    assert server.requests == []


@PLAIN
def test_a_proxy_with_a_foreign_certificate_is_told_nothing(way: Way, tmp_path: Path) -> None:
    foreign, _ = _other_tls(tmp_path)
    with tunnel(tls=foreign) as proxy:
        failure = way.failure(
            way.client(proxy.url, "https://db.invalid", PATIENT, userinfo=_USERINFO)
        )
    assert (failure.retryable, failure.ambiguous) == (False, False)
    assert "certificate" in str(failure)
    assert proxy.asked == []


@PLAIN
def test_a_proxy_may_have_a_certificate_that_only_the_system_trusts(
    way: Way, tmp_path: Path
) -> None:
    known, trusted = _other_tls(tmp_path)
    way.patch.delenv("AWS_CA_BUNDLE")
    way.patch.setenv("SSL_CERT_FILE", str(trusted))
    with ChaosProxy(way.dynamodb.url, [_ABOVE], known) as proxy:
        client = way.client(proxy.url, "http://db.invalid", PATIENT)
        assert way.ask(client) == {}
        way.close(client)


@pytest.mark.parametrize("url", ["socks5://{}@host:1", "http://{}@host:x", "http://{}@"])
@PLAIN
def test_a_proxy_url_that_cannot_be_used_is_refused_without_its_password(
    way: Way, url: str
) -> None:
    client = way.client(url.format(_USERINFO), "https://db.invalid")
    with pytest.raises(ValidationError, match="Invalid proxy: must be like") as raised:
        way.ask(client)
    assert _USERINFO not in f"{raised.value.value}{raised.value}"


def test_an_endpoint_that_says_more_than_it_was_asked_leaves_no_tunnel(way: Way) -> None:
    """Without this, the next call would take the surplus for its answer."""
    two = Said([_EMPTY, b"HTTP/1.1 408 Too Late\r\n\r\n"], is_one_packet=True)
    with (
        scripted([two, _EMPTY], [_EMPTY], tls=way.tls) as server,
        tunnel(tls=way.proxy_tls) as proxy,
    ):
        client = way.client(proxy.url, server.url, PATIENT)
        assert [way.ask(client) for _ in range(2)] == [{}] * 2
        way.close(client)
    assert server.heard == [1, 1]


def _hammer(way: Way, client: DynamoClient, callers: int) -> list[Any]:
    """Return the answers to calls that are made at the same time."""

    async def together() -> list[Any]:
        calls = [client.call("ListTables", {}) for _ in range(callers)]
        return list(await asyncio.gather(*calls))

    if not way.driver.blocking:
        answers: list[Any] = way.driver.run(together())
        return answers
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(way.ask(client))) for _ in range(callers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_no_more_tunnels_are_opened_than_the_pool_may_hold(way: Way) -> None:
    limits = Limits(connect_timeout_s=20, read_timeout_s=20, connections=3)
    with ChaosProxy(way.dynamodb.url, tls=way.tls) as server, tunnel(tls=way.proxy_tls) as proxy:
        client = way.client(proxy.url, server.url, limits)
        assert all("TableNames" in each for each in _hammer(way, client, 24))
        way.close(client)
    assert 1 <= len(proxy.asked) <= 3
    assert len(server.requests) == 24


def test_a_refused_tunnel_gives_its_place_in_the_pool_back(way: Way) -> None:
    limits = Limits(connect_timeout_s=20, read_timeout_s=20, connections=1)
    plan = [refusal(403)] * 3
    with (
        ChaosProxy(way.dynamodb.url, tls=way.tls) as server,
        tunnel(*plan, tls=way.proxy_tls) as proxy,
    ):
        client = way.client(proxy.url, server.url, limits)
        for _ in plan:
            way.failure(client)
        assert "TableNames" in way.ask(client)
        way.close(client)


@pytest.mark.parametrize("driver", ["asyncio"], indirect=True)
@pytest.mark.parametrize("says", [SILENCE, Says([_OPEN], closes=False)], ids=["answer", "tls"])
def test_a_call_that_is_cancelled_while_its_tunnel_opens_is_given_up_at_once(
    way: Way, says: Says
) -> None:
    limits = Limits(connect_timeout_s=60, read_timeout_s=60, connections=1)
    with (
        ChaosProxy(way.dynamodb.url, tls=way.tls) as server,
        tunnel(says, tls=way.proxy_tls) as proxy,
    ):
        client = way.client(proxy.url, server.url, limits)

        async def cancel_and_ask_again() -> Any:
            task = asyncio.ensure_future(client.call("ListTables", {}))
            await asyncio.to_thread(proxy.heard.wait)
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(task, 10)
            return await client.call("ListTables", {})

        assert "TableNames" in way.driver.run(cancel_and_ask_again())
        way.close(client)
    assert len(proxy.asked) == 2
    assert len(server.requests) == 1
