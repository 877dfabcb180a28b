from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.servers.authority import loopback_tls
from tests.support.servers.chaos import ChaosProxy, Pass, Reset
from tests.support.servers.processes import Server
from tests.support.transports import BOTH
from tests.support.wire_drivers import Driver
from zae_limiter.core.exceptions import StorageUnavailable

from .conftest import Connect


@BOTH
def test_a_trusted_authority_is_believed(
    dynamodb: Server,
    driver: Driver,
    connect: Connect,
    transport: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tls, trusted = loopback_tls(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(trusted))
    with ChaosProxy(dynamodb.url, [Pass(), Reset()], tls) as proxy:
        client = connect(dynamodb, proxy.url, transport=transport)
        assert "TableNames" in driver.run(client.call("ListTables", {}))
        with pytest.raises(StorageUnavailable) as raised:
            driver.run(client.call("ListTables", {}))
        assert raised.value.ambiguous
        driver.run(client.close())


@BOTH
def test_an_unknown_authority_is_not_believed(
    dynamodb: Server, driver: Driver, connect: Connect, transport: str, tmp_path: Path
) -> None:
    tls, _ = loopback_tls(tmp_path)
    with ChaosProxy(dynamodb.url, (), tls) as proxy:
        client = connect(dynamodb, proxy.url, transport=transport)
        with pytest.raises(StorageUnavailable, match=r"(?i)certificate") as raised:
            driver.run(client.call("ListTables", {}))
        assert (raised.value.retryable, raised.value.ambiguous) == (False, False)
        driver.run(client.close())
    assert proxy.requests == []


@BOTH
def test_a_server_without_tls_was_not_sent_to(
    dynamodb: Server, driver: Driver, connect: Connect, transport: str
) -> None:
    with ChaosProxy(dynamodb.url) as proxy:
        client = connect(dynamodb, proxy.url.replace("http:", "https:"), transport=transport)
        with pytest.raises(StorageUnavailable):
            driver.run(client.call("ListTables", {}))
        driver.run(client.close())
    assert proxy.requests == []
