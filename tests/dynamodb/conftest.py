"""Tables of a real DynamoDB server, by both drivers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.chaos import ChaosProxy
from tests.servers.fixtures import dynamodb
from tests.servers.processes import Server
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.testing import ManualClock

from .support import Runner, new_name, open_store, runner

__all__ = ["dynamodb"]

_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")
_ENVIRONMENT = [
    name for name in os.environ if name.startswith(("AWS_", "ZAEL_")) or name.lower() in _PROXIES
]


@pytest.fixture(autouse=True)
def caller(dynamodb: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the machine's own settings is seen, but for a server that needs them."""
    if dynamodb.access_key is None or dynamodb.secret_key is None:
        return
    for name in _ENVIRONMENT:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", dynamodb.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", dynamodb.secret_key)


@pytest.fixture(params=["asyncio", "threads"])
def driver(request: pytest.FixtureRequest) -> Iterator[Runner]:
    with runner(request.param) as made:
        yield made


@pytest.fixture(params=["asyncio", "threads"])
def patient(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """A driver whose waits take no time."""
    with runner(request.param, ManualClock()) as made:
        yield made


@pytest.fixture
def proxy(dynamodb: Server) -> Iterator[ChaosProxy]:
    with ChaosProxy(dynamodb.url) as made:
        yield made


@pytest.fixture
def shaky(patient: Runner, dynamodb: Server, proxy: ChaosProxy) -> Iterator[DynamoStore]:
    """A store in a table of its own, behind the proxy."""
    opened = patient.run(open_store(dynamodb, new_name(), patient.io, url=proxy.url))
    yield opened
    proxy.use(())
    patient.run(opened.delete_table())
    patient.run(opened.close())


@pytest.fixture
def store(driver: Runner, dynamodb: Server) -> Iterator[DynamoStore]:
    """A store in a table of its own."""
    opened = driver.run(open_store(dynamodb, new_name(), driver.io))
    yield opened
    driver.run(opened.delete_table())
    driver.run(opened.close())
