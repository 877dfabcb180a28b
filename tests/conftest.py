"""Fixtures that run one test by every driver on every store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import get_args

import pytest

from tests.support.drivers import Driver, StoreKind, World
from tests.support.servers.tables import OwnTable
from zae_limiter import RateLimiter, Repository
from zae_limiter.testing import ManualClock

pytest_plugins = ["tests.support.servers.fixtures"]


@pytest.fixture(params=get_args(Driver))
def driver(request: pytest.FixtureRequest) -> Driver:
    """The asynchronous facade and the blocking one."""
    chosen: Driver = request.param
    return chosen


@pytest.fixture(params=get_args(StoreKind))
def store_kind(request: pytest.FixtureRequest) -> StoreKind:
    """Every store."""
    chosen: StoreKind = request.param
    return chosen


@pytest.fixture
def place(request: pytest.FixtureRequest, store_kind: StoreKind, tmp_path: Path) -> Path | OwnTable:
    """Where a new store is: a table, or a folder, which one in memory does not need."""
    return request.getfixturevalue("table") if store_kind == "dynamodb" else tmp_path


@pytest.fixture
async def world(
    driver: Driver, store_kind: StoreKind, place: Path | OwnTable
) -> AsyncIterator[World]:
    """A store of each kind, opened once by each driver."""
    world = World(driver, store_kind, place)
    await world.open()
    yield world
    await world.close()


@pytest.fixture
def clock(world: World) -> ManualClock:
    return world.clock


@pytest.fixture
def repository(world: World) -> Repository:
    return world.repository


@pytest.fixture
def limiter(world: World) -> RateLimiter:
    return world.limiter()
