"""While the store cannot answer, each call blocks or passes, as the mode in force says."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.drivers import (
    Awaited,
    Driver,
    World,
    balance,
    limiter_on,
    open_repository,
    take,
)
from zae_limiter import (
    Limit,
    OnUnavailable,
    RateLimiter,
    RateLimiterUnavailable,
    RateLimitExceeded,
    Repository,
    StorageUnavailable,
    StoredDataError,
    SyncRepository,
    ValidationError,
)
from zae_limiter.backends.sqlite import SqliteStore
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.writes import Adjust, Outcome, Write
from zae_limiter.flows.admin import namespaces
from zae_limiter.flows.scope import Scope
from zae_limiter.runtime.asyncio_driver import AsyncioIo
from zae_limiter.runtime.blocking import BlockingIo, run

RPM = Limit.per_minute("rpm", 100)
ALLOW, BLOCK = OnUnavailable.ALLOW, OnUnavailable.BLOCK
on_a_file = pytest.mark.parametrize("store_kind", ["sqlite"], indirect=True)


class Outage:
    """An outage: the file is gone, and comes back."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._away = path.with_suffix(".away")

    def begin(self) -> None:
        self._path.rename(self._away)

    def end(self) -> None:
        self._away.rename(self._path)

    def __enter__(self) -> Outage:
        self.begin()
        return self

    def __exit__(self, *error: Any) -> None:
        self.end()


@pytest.fixture
async def outage(world: World) -> Outage:
    repository = world.repository
    await repository.set_resource_defaults("gpt-4", [RPM])
    await repository.create_entity("key-1", parent_id="org", cascade=True)
    return Outage(world.path)


async def balances(world: World) -> tuple[dict[str, int], dict[str, int]]:
    return await balance(world.repository), await balance(world.repository, "org")


async def acquire(limiter: RateLimiter, mode: OnUnavailable | None = None, amount: int = 10) -> Any:
    return await take(limiter, on_unavailable=mode, rpm=amount)


async def warm(world: World) -> RateLimiter:
    limiter = world.limiter()
    await acquire(limiter)
    return limiter


@on_a_file
@pytest.mark.parametrize("known", [False, True], ids=["config read", "first write"])
async def test_an_outage_in_block_mode_raises_and_charges_nothing(
    world: World, outage: Outage, known: bool
) -> None:
    limiter = await warm(world) if known else world.limiter()
    before = await balances(world)
    with outage, pytest.raises(RateLimiterUnavailable) as refused:
        await acquire(limiter)
    error = refused.value
    assert not isinstance(error, StorageUnavailable)
    assert isinstance(error.cause, StorageUnavailable)
    assert (error.entity_id, error.resource, error.stack_name) == ("key-1", "gpt-4", world.url)
    assert "key-1" in str(error)
    assert await balances(world) == before
    await acquire(limiter)


@on_a_file
@pytest.mark.parametrize("known", [False, True], ids=["config read", "first write"])
@pytest.mark.parametrize("timeout", [None, 5])
async def test_an_outage_in_allow_mode_lets_the_call_through_uncharged(
    world: World, outage: Outage, known: bool, timeout: float | None
) -> None:
    limiter = await warm(world) if known else world.limiter()
    before = await balances(world)
    with outage:
        async with limiter.acquire(
            "key-1", "gpt-4", {"rpm": 10}, on_unavailable=ALLOW, timeout=timeout
        ) as lease:
            assert lease.degraded
            assert (lease.entries, lease.consumed) == ([], {})
            await lease.consume(rpm=5)
            await lease.adjust(rpm=5)
            await lease.release(rpm=1)
            assert lease.consumed == {}
    assert await balances(world) == before
    assert not (await acquire(limiter)).degraded


@on_a_file
async def test_outages_are_counted_by_how_they_ended(world: World, outage: Outage) -> None:
    limiter = world.limiter()
    with outage:
        for _ in range(2):
            with pytest.raises(RateLimiterUnavailable):
                await acquire(limiter)
        for _ in range(3):
            await acquire(limiter, ALLOW)
    stats = world.repository.get_stats()
    assert (stats.admitted, stats.unavailable, stats.degraded) == (0, 2, 3)


@on_a_file
async def test_a_degraded_lease_still_checks_its_amounts(world: World, outage: Outage) -> None:
    limiter = world.limiter(on_unavailable=ALLOW)
    with outage:
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 10}) as lease:
            assert lease.degraded
            with pytest.raises(ValidationError):
                await lease.consume(rpm=-1)
            with pytest.raises(ValidationError):
                await lease.adjust(rpm=1.5)  # type: ignore[arg-type]


@on_a_file
@pytest.mark.parametrize(
    ("call", "stored", "constructor", "passes"),
    [
        (None, None, None, False),
        (None, None, ALLOW, True),
        (None, None, BLOCK, False),
        (None, "block", ALLOW, False),
        (None, "allow", BLOCK, True),
        (BLOCK, "allow", ALLOW, False),
        (ALLOW, "block", BLOCK, True),
    ],
)
async def test_the_call_s_mode_beats_the_stored_mode_and_the_constructor_s(
    world: World,
    outage: Outage,
    call: OnUnavailable | None,
    stored: Any,
    constructor: OnUnavailable | None,
    passes: bool,
) -> None:
    if stored is not None:
        await world.repository.set_system_defaults([RPM], stored)
    limiter = limiter_on(world.stranger(), on_unavailable=constructor)
    await acquire(limiter)
    world.clock.advance(3600)
    with outage:
        if passes:
            assert (await acquire(limiter, call)).degraded
        else:
            with pytest.raises(RateLimiterUnavailable):
                await acquire(limiter, call)


@on_a_file
async def test_the_stored_mode_is_used_while_it_cannot_be_read(
    world: World, outage: Outage
) -> None:
    repository = world.stranger()
    assert await repository.resolve_on_unavailable() == "block"
    await world.repository.set_system_defaults([RPM], "allow")
    world.clock.advance(60)
    assert await repository.resolve_on_unavailable() == "allow"
    world.clock.advance(3600)
    with outage:
        assert await repository.resolve_on_unavailable() == "allow"
        assert await world.stranger().resolve_on_unavailable() == "block"


@on_a_file
async def test_a_mode_set_by_this_process_counts_at_once(world: World, outage: Outage) -> None:
    limiter = world.limiter()
    await limiter.set_system_defaults([RPM], ALLOW)
    with outage:
        assert (await acquire(limiter)).degraded
    await limiter.delete_system_defaults()
    with outage, pytest.raises(RateLimiterUnavailable):
        await acquire(limiter)


@on_a_file
async def test_an_outage_before_the_corrections_raises_or_passes_by_mode(
    world: World, outage: Outage
) -> None:
    limiter = world.limiter()

    async def work(mode: OnUnavailable) -> None:
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 10}, on_unavailable=mode) as lease:
            await lease.adjust(rpm=5)
            outage.begin()

    with pytest.raises(RateLimiterUnavailable):
        await work(BLOCK)
    outage.end()
    assert await balances(world) == ({"rpm": 90_000}, {"rpm": 90_000})
    await work(ALLOW)
    outage.end()
    assert await balances(world) == ({"rpm": 80_000}, {"rpm": 80_000})


@on_a_file
@pytest.mark.parametrize("mode", [ALLOW, BLOCK])
async def test_an_outage_before_the_refund_does_not_hide_the_block_s_error(
    world: World,
    outage: Outage,
    mode: OnUnavailable,
    caplog: pytest.LogCaptureFixture,
) -> None:
    limiter = world.limiter()

    async def work() -> None:
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 10}, on_unavailable=mode):
            outage.begin()
            raise ZeroDivisionError

    with caplog.at_level(logging.WARNING, "zae_limiter"), pytest.raises(ZeroDivisionError):
        await work()
    outage.end()
    assert "Refund failed" in caplog.text
    assert await balances(world) == ({"rpm": 90_000}, {"rpm": 90_000})


@on_a_file
async def test_an_outage_before_a_lease_consumes_raises_or_passes_by_mode(
    world: World, outage: Outage
) -> None:
    limiter = world.limiter()

    async def work(mode: OnUnavailable) -> None:
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 10}, on_unavailable=mode) as lease:
            with outage:
                await lease.consume(rpm=5)
            assert lease.consumed == {"rpm": 20}

    with pytest.raises(RateLimiterUnavailable):
        await work(BLOCK)
    assert await balances(world) == ({"rpm": 100_000}, {"rpm": 100_000})
    await work(ALLOW)
    assert await balances(world) == ({"rpm": 90_000}, {"rpm": 90_000})


@on_a_file
async def test_is_available_is_false_in_an_outage_and_never_raises(
    world: World, outage: Outage
) -> None:
    limiter, repository = world.limiter(), world.repository
    assert await limiter.is_available()
    assert await repository.ping()
    with outage:
        assert not await limiter.is_available()
        assert not await repository.ping()
    assert await limiter.is_available()


@on_a_file
async def test_reads_and_changes_raise_in_an_outage_whatever_the_mode(
    world: World, outage: Outage
) -> None:
    limiter = world.limiter(on_unavailable=ALLOW)
    with outage:
        for call in (
            limiter.available("key-1", "gpt-4"),
            limiter.time_until_available("key-1", "gpt-4", {}),
            limiter.get_entity("key-1"),
            limiter.create_entity("key-2"),
            limiter.set_limits("key-1", [RPM]),
            limiter.get_resource_capacity("gpt-4", "rpm"),
            limiter.get_usage_snapshots("key-1"),
        ):
            with pytest.raises(RateLimiterUnavailable):
                await call
    assert await limiter.get_entity("key-2") is None


class FailingFor:
    """A store whose buckets of one entity cannot be written to."""

    def __init__(self, buckets: Any, entity_id: str, *, lands: bool = False) -> None:
        self._buckets = buckets
        self._entity_id = entity_id
        self._lands = lands

    def __getattr__(self, name: str) -> Any:
        return getattr(self._buckets, name)

    async def write(self, address: BucketAddress, write: Write) -> Outcome:
        if address.entity_id != self._entity_id or isinstance(write, Adjust):
            outcome: Outcome = await self._buckets.write(address, write)
            return outcome
        if self._lands:
            await self._buckets.write(address, write)
        raise StorageUnavailable("no answer", retryable=False, ambiguous=self._lands)


@pytest.mark.parametrize("lands", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("failing", ["key-1", "org"])
async def test_a_level_that_cannot_be_charged_leaves_no_level_charged(
    world: World, failing: str, lands: bool
) -> None:
    limiter = world.limiter(default_limits=[RPM])
    await limiter.create_entity("key-1", parent_id="org", cascade=True)
    await acquire(limiter)
    before = await balances(world)
    store: Any = world.scope.store
    healthy, store.buckets = store.buckets, FailingFor(store.buckets, failing, lands=lands)
    with pytest.raises(RateLimiterUnavailable):
        await acquire(limiter, BLOCK)
    assert (await acquire(limiter, ALLOW)).degraded
    store.buckets = healthy
    assert await balances(world) == before
    for entity_id in ("key-1", "org"):
        (state,) = await world.repository.get_buckets(entity_id)
        assert state.total_consumed_milli == 10_000


class KeyKeeps:
    """A store that cannot give back to the key, and gives the parent its tokens back then."""

    def __init__(self, buckets: Any, give_back: Adjust) -> None:
        self._buckets = buckets
        self._give_back = give_back

    def __getattr__(self, name: str) -> Any:
        return getattr(self._buckets, name)

    async def write(self, address: BucketAddress, write: Write) -> Outcome:
        if isinstance(write, Adjust):
            await self._buckets.write(address._replace(entity_id="org"), self._give_back)
            raise StorageUnavailable("no answer", retryable=False)
        outcome: Outcome = await self._buckets.write(address, write)
        return outcome


@pytest.mark.parametrize("store_kind", ["sqlite", "dynamodb"], indirect=True)
async def test_a_charge_that_could_not_be_given_back_is_not_made_again(world: World) -> None:
    limiter = world.limiter(default_limits=[RPM])
    await limiter.create_entity("key-1", parent_id="org", cascade=True)
    await acquire(limiter)
    await take(limiter_on(world.stranger(), default_limits=[RPM]), "org", rpm=90)
    store: Any = world.scope.store
    healthy = store.buckets
    io = world.scope.io
    gift = Adjust(io.operation_id(), io.now_ms(), {"rpm": -90_000}, acquires=0)
    store.buckets = KeyKeeps(healthy, gift)
    with pytest.raises(RateLimitExceeded):
        await acquire(limiter)
    store.buckets = healthy
    assert await balances(world) == ({"rpm": 80_000}, {"rpm": 90_000})


@on_a_file
async def test_a_damaged_record_is_not_treated_as_an_outage(world: World, outage: Outage) -> None:
    limiter = await warm(world)
    with closing(sqlite3.connect(world.path)) as db, db:
        db.execute("UPDATE buckets SET state = 'nonsense' WHERE entity_id = 'org'")
    with pytest.raises(StoredDataError) as refused:
        await acquire(limiter, ALLOW)
    assert "org" in refused.value.record
    assert await balance(world.repository) == {"rpm": 90_000}


async def test_a_programming_error_of_a_store_surfaces_as_it_is(world: World) -> None:
    limiter = world.limiter(default_limits=[RPM])
    await acquire(limiter)
    before = await balance(world.repository)
    store: Any = world.scope.store

    class Broken:
        def __getattr__(self, name: str) -> Any:
            return getattr(healthy, name)

        async def write(self, address: BucketAddress, write: Write) -> Outcome:
            raise ZeroDivisionError

    healthy, store.buckets = store.buckets, Broken()
    with pytest.raises(ZeroDivisionError):
        await acquire(limiter, ALLOW)
    store.buckets = healthy
    assert await balance(world.repository) == before


async def open_impatient(driver: Driver, path: Path) -> Repository:
    """Open a repository that waits for a lock only for a moment."""
    if driver == "asyncio":
        io = AsyncioIo()
        store = await SqliteStore.open(str(path), io, create=True, wait_s=0.02)
        record = await namespaces.register(store, io, "default")
        return Repository.on_scope(
            Scope(store, io, record.namespace_id), "default", owns_store=True
        )
    blocking = BlockingIo()
    opened = run(SqliteStore.open(str(path), blocking, create=True, wait_s=0.02))
    made = run(namespaces.register(opened, blocking, "default"))
    scope = Scope(opened, blocking, made.namespace_id)
    repository: Any = Awaited(SyncRepository.on_scope(scope, "default", owns_store=True))
    return repository  # type: ignore[no-any-return]


@pytest.fixture
async def impatient(driver: Driver, tmp_path: Path) -> AsyncIterator[Repository]:
    repository = await open_impatient(driver, tmp_path / "limits.db")
    await repository.set_system_defaults([RPM])
    yield repository
    await repository.close()


async def test_a_file_that_stays_locked_is_an_outage(impatient: Repository, tmp_path: Path) -> None:
    limiter = limiter_on(impatient)
    await acquire(limiter)
    with closing(sqlite3.connect(tmp_path / "limits.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RateLimiterUnavailable, match="locked"):
            await acquire(limiter)
        assert (await acquire(limiter, ALLOW)).degraded
        assert not await limiter.is_available(timeout=0.02)
        assert await limiter.available("key-1", "gpt-4") == {"rpm": 90}
        other.execute("ROLLBACK")
    await acquire(limiter)
    assert await limiter.available("key-1", "gpt-4") == {"rpm": 80}


async def test_a_file_locked_during_the_block_raises_or_passes_by_mode(
    impatient: Repository, tmp_path: Path
) -> None:
    limiter = limiter_on(impatient)

    async def work(other: sqlite3.Connection, mode: OnUnavailable) -> None:
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 10}, on_unavailable=mode) as lease:
            await lease.adjust(rpm=5)
            other.execute("BEGIN IMMEDIATE")

    with closing(sqlite3.connect(tmp_path / "limits.db", isolation_level=None)) as other:
        with pytest.raises(RateLimiterUnavailable):
            await work(other, BLOCK)
        other.execute("ROLLBACK")
        await work(other, ALLOW)
        other.execute("ROLLBACK")
    assert await balance(impatient) == {"rpm": 80_000}


async def test_a_breaker_refuses_writes_to_a_file_that_stays_locked(
    driver: Driver, tmp_path: Path
) -> None:
    path = tmp_path / "limits.db"
    async with await open_repository(driver, url=f"sqlite:///{path}") as repository:
        limiter = limiter_on(repository, default_limits=[RPM])
        await acquire(limiter)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for _ in range(6):
                async with limiter.acquire(
                    "key-1", "gpt-4", {"rpm": 10}, on_unavailable=ALLOW, timeout=0.15
                ) as lease:
                    assert lease.degraded
            assert repository.get_cache_stats().breaker == "open"
            with pytest.raises(RateLimiterUnavailable, match="was not tried again"):
                await acquire(limiter)
            other.execute("ROLLBACK")
        await asyncio.sleep(0.3)
        assert not (await acquire(limiter)).degraded
        assert repository.get_cache_stats().breaker == "closed"
