"""Tables of a real DynamoDB server, by both drivers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dynamodb import Runner, new_name, open_store, runner
from tests.support.peer.client import Peer, running
from tests.support.servers.chaos import ChaosProxy
from tests.support.servers.processes import Server
from tests.support.servers.tables import OwnTable
from tests.support.table_crowd import NAMESPACE, Crowd
from zae_limiter import SyncRepository
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.testing import ManualClock


@pytest.fixture(autouse=True)
def _caller(caller: None) -> None:
    """Every test here calls a server."""


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


@pytest.fixture
def crowd(table: OwnTable, tmp_path: Path) -> Iterator[Crowd]:
    """Nobody yet."""
    made = Crowd(table, tmp_path, SyncRepository.open(NAMESPACE, url=table.url))
    yield made
    made.close()


@pytest.fixture(scope="module")
def table_name() -> str:
    return new_name()


@pytest.fixture(scope="module")
def peer(dynamodb: Server, table_name: str) -> Iterator[Peer]:
    """The existing package, in a table that it has made."""
    with running(dynamodb, table_name) as made:
        made.call("create_table")
        yield made
        made.repository("delete_table")
