"""Fixtures provide both drivers, a clean AWS environment, and clients for real servers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.servers.processes import Server
from tests.support.servers.tables import PATIENT
from tests.support.wire_drivers import Driver, asyncio_driver, blocking_driver
from zae_limiter.backends.dynamodb.wire.client import DynamoClient
from zae_limiter.backends.dynamodb.wire.connect import open_client
from zae_limiter.backends.dynamodb.wire.edge import Limits

_ENVIRONMENT = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}

Connect = Callable[..., DynamoClient]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the machine's own AWS settings, and ask for no machine role."""
    for name in _ENVIRONMENT:
        monkeypatch.delenv(name)
    monkeypatch.delenv("ZAEL_TRANSPORT", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(params=["asyncio", "blocking"])
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    with asyncio_driver() if request.param == "asyncio" else blocking_driver() as made:
        yield made


@pytest.fixture
def connect(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Make clients of a server, and close them after the test."""
    made: list[DynamoClient] = []

    def connect(
        server: Server,
        url: str | None = None,
        limits: Limits | None = None,
        transport: str | None = None,
    ) -> DynamoClient:
        act_as_caller_of(server, monkeypatch)
        client = open_client(
            driver.io,
            transport=transport,
            blocking=driver.blocking,
            region=server.region,
            endpoint_url=url or server.url,
            limits=limits or PATIENT,
        )
        made.append(client)
        return client

    yield connect
    for client in made:
        driver.run(client.close())


def act_as_caller_of(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the credentials that the server wants."""
    environment = dict(_ENVIRONMENT)
    if server.access_key and server.secret_key:
        environment = {
            "AWS_ACCESS_KEY_ID": server.access_key,
            "AWS_SECRET_ACCESS_KEY": server.secret_key,
        }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
