from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.authority import loopback_tls
from tests.servers.chaos import Answer, ChaosProxy, closed_door
from tests.servers.processes import Server
from tests.servers.tunnel import tunnel
from zae_limiter.core.exceptions import StorageUnavailable

from .conftest import Connect
from .drivers import Driver

_ABOVE = Answer(200, b"{}")


@pytest.fixture(autouse=True)
def no_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own settings do not count, and loopback may be proxied too."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_a_proxy_of_the_environment_is_asked_for_the_whole_url(
    dynamodb: Server, driver: Driver, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ChaosProxy(dynamodb.url, [_ABOVE]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        client = connect(dynamodb, "http://db.invalid:8000/x")
        assert driver.run(client.call("ListTables", {})) == {}
        driver.run(client.close())
    request, _ = proxy.requests[0]
    assert request.path == "http://db.invalid:8000/x"
    assert request.headers["host"] == "db.invalid:8000"


def test_hosts_that_need_no_proxy_are_reached_directly(
    dynamodb: Server, driver: Driver, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with closed_door() as nobody, ChaosProxy(dynamodb.url, [_ABOVE]) as server:
        monkeypatch.setenv("HTTP_PROXY", nobody)
        client = connect(dynamodb, server.url)
        assert driver.run(client.call("ListTables", {})) == {}
        driver.run(client.close())
    assert len(server.requests) == 1


def test_tls_goes_through_a_tunnel(
    dynamodb: Server,
    driver: Driver,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    tls, trusted = loopback_tls(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(trusted))
    with ChaosProxy(dynamodb.url, tls=tls) as server, tunnel() as lent:
        monkeypatch.setenv("HTTPS_PROXY", lent.url)
        client = connect(dynamodb, server.url)
        for _ in range(2):
            assert "TableNames" in driver.run(client.call("ListTables", {}))
        driver.run(client.close())
    assert lent.asked == [f"CONNECT {server.url.removeprefix('https://')}"]


def test_a_proxy_that_refuses_has_sent_nothing(
    dynamodb: Server, driver: Driver, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tunnel(lets_through=False) as lent:
        monkeypatch.setenv("HTTPS_PROXY", lent.url)
        client = connect(dynamodb, "https://db.invalid")
        with pytest.raises(StorageUnavailable) as raised:
            driver.run(client.call("ListTables", {}))
        driver.run(client.close())
    assert not raised.value.ambiguous


def test_a_proxy_that_is_not_there_was_not_sent_to(
    dynamodb: Server, driver: Driver, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closed_door() as nobody:
        monkeypatch.setenv("HTTP_PROXY", nobody)
        client = connect(dynamodb, "http://db.invalid")
        with pytest.raises(StorageUnavailable) as raised:
            driver.run(client.call("ListTables", {}))
    assert (raised.value.retryable, raised.value.ambiguous) == (True, False)
