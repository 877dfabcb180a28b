"""Lost answers, resets, errors and throttling, by a proxy between clients and server: charged
once, refunded at most once, never more than the limits allow; and nothing hangs."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_args

import pytest

from tests.support.drivers import Driver, balance, limiter_on, open_repository
from tests.support.dynamodb import IS_EXACT
from tests.support.servers.chaos import (
    INTERNAL_ERROR,
    THROTTLED,
    Act,
    ChaosProxy,
    Corrupt,
    Delay,
    DropAnswer,
    Hold,
    Pass,
    Request,
    Reset,
    Truncate,
    seeded,
)
from tests.support.servers.tables import OwnTable
from tests.support.table_client import ENTITY, LIMITS, RESOURCE
from tests.support.table_crowd import Crowd
from zae_limiter import (
    Limit,
    OnUnavailable,
    RateLimiter,
    RateLimiterUnavailable,
    Repository,
)
from zae_limiter.backends.dynamodb.url import dynamodb_url
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.exceptions import StorageUnavailable
from zae_limiter.flows.shards.items import read_all, split_shard
from zae_limiter.testing import ManualClock

from .test_processes import check_history

FAULTS: dict[str, tuple[Act, ...]] = {
    "lost answers": (DropAnswer(), Truncate(), Corrupt()),
    "resets": (Reset(), DropAnswer()),
    "errors": (INTERNAL_ERROR, THROTTLED),
    "everything": (
        DropAnswer(),
        Truncate(),
        Corrupt(),
        Reset(),
        INTERNAL_ERROR,
        THROTTLED,
        Delay(0.05),
    ),
}


def url_through(proxy: ChaosProxy, table: OwnTable) -> str:
    return dynamodb_url(table.name, table.server.region, proxy.url)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind == "lost answers" else pytest.mark.slow)
        for kind in FAULTS
    ],
)
def test_clients_charge_once_and_refund_at_most_once(
    kind: str, crowd: Crowd, proxy: ChaosProxy
) -> None:
    crowd.repository.set_limits(ENTITY, LIMITS, RESOURCE)
    for _ in range(3):
        crowd.start(url_through(proxy, crowd.table))
    crowd.wait_until_ready()
    proxy.use(seeded(len(kind), FAULTS[kind], share=0.15))

    def have_happened() -> bool:
        happened = [act for _, act in proxy.requests]
        return all(happened.count(act) >= 3 for act in FAULTS[kind])

    account = crowd.run(have_happened, admitted=30, refused=10, corrected=5, refunded=2)
    consumed = crowd.consumed()
    for name, charged in account.charged.items():
        low, high = charged + account.least[name], charged + account.most[name]
        assert low <= consumed[name] <= high, f"{name}: {consumed[name]} of {low} to {high}"
    check_history(account, crowd)


@pytest.fixture(params=["asyncio", "blocking"])
def facade(request: pytest.FixtureRequest) -> Driver:
    chosen: Driver = request.param
    return chosen


ONE_FAULT: dict[str, Act] = {
    "dropped": DropAnswer(),
    "truncated": Truncate(),
    "reset": Reset(),
    "500": INTERNAL_ERROR,
    "throttled": THROTTLED,
    **({"corrupted": Corrupt()} if IS_EXACT else {}),
}


async def live_through(repository: Repository) -> tuple[int, int, int, int]:
    """One of everything. What there is in the end: items, tokens, consumption, acquires."""
    limiter = limiter_on(repository, default_limits=[Limit.per_day("rpm", 1000)])
    async with limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass
    async with limiter.acquire("key", "gpt-4", {"rpm": 10}) as lease:
        await lease.consume(rpm=5)
        await lease.adjust(rpm=3)
    async with limiter.acquire("key", "gpt-4", {"rpm": 20}) as lease:
        await lease.release(rpm=4)
    with pytest.raises(ZeroDivisionError):
        async with limiter.acquire("key", "gpt-4", {"rpm": 50}):
            raise ZeroDivisionError
    scope = repository.scope
    home = BucketAddress(scope.namespace_id, "key", "gpt-4")
    await split_shard(scope, home, (await read_all(scope, home))[home])
    async with limiter.acquire("key", "gpt-4", {"rpm": 700}) as lease:
        await lease.release(rpm=100)
    with pytest.raises(ZeroDivisionError):
        async with limiter.acquire("key", "gpt-4", {"rpm": 300}):
            raise ZeroDivisionError
    found = await read_all(scope, home)
    cells = [bucket.cells["rpm"] for bucket in found.values()]
    acquires = sum(bucket.acquires for bucket in found.values())
    return (
        len(found),
        sum(cell.tokens_milli for cell in cells),
        sum(cell.consumed_milli for cell in cells),
        acquires,
    )


# A lost answer and a request that never arrived, each by one driver; the rest is slow.
QUICK_FAULTS = {("dropped", "asyncio"), ("reset", "blocking")}


@pytest.mark.parametrize(
    ("fault", "facade"),
    [
        pytest.param(*each, marks=[] if each in QUICK_FAULTS else pytest.mark.slow)
        for each in itertools.product(ONE_FAULT, get_args(Driver))
    ],
    indirect=["facade"],
)
async def test_one_fault_at_any_moment_changes_nothing(
    fault: str, facade: Driver, proxy: ChaosProxy, table: OwnTable
) -> None:
    """On a bucket that nobody else uses, every doubt can be cleared up."""
    url = url_through(proxy, table)
    for moment in itertools.count():
        async with await open_repository(
            facade, f"n{moment}", url=url, clock=ManualClock()
        ) as repository:
            proxy.requests.clear()
            proxy.use([*[Pass()] * moment, ONE_FAULT[fault]])
            assert await live_through(repository) == (2, 365_000, 635_000, 4)
            proxy.use(())
        if len(proxy.requests) <= moment:
            break
    assert moment > 20


LIMIT = Limit.per_day("rpm", 100)
OUTAGES: dict[str, Act] = {"reset": Reset(), "500": INTERNAL_ERROR, "throttled": THROTTLED}


@pytest.fixture(params=list(OUTAGES))
def outage(request: pytest.FixtureRequest) -> Act:
    """What becomes of every request while the store is down."""
    return OUTAGES[request.param]


@pytest.fixture(params=list(OnUnavailable))
def mode(request: pytest.FixtureRequest) -> OnUnavailable:
    chosen: OnUnavailable = request.param
    return chosen


@pytest.fixture
async def family(facade: Driver, proxy: ChaosProxy, table: OwnTable) -> AsyncIterator[Repository]:
    """A key that cascades to an organisation; waiting takes no time."""
    url = url_through(proxy, table)
    # Without the breaker: it would open while a write is asked after, and refuse what comes next.
    repository = await open_repository(facade, url=url, clock=ManualClock(), breaker_failures=0)
    await repository.set_system_defaults([LIMIT])
    await repository.create_entity("org")
    await repository.create_entity("key", parent_id="org", cascade=True)
    async with limiter_on(repository).acquire("key", "gpt-4", {"rpm": 1}):
        pass
    yield repository
    proxy.use(())
    await repository.close()


async def balances(repository: Repository) -> tuple[int, int]:
    """Of the key and of the organisation."""
    both = [await balance(repository, entity_id) for entity_id in ("key", "org")]
    return both[0]["rpm"], both[1]["rpm"]


WARM = (99_000, 99_000)


class Verdict:
    """What a mode means for a block of code during which the store cannot answer."""

    def __init__(self, mode: OnUnavailable, repository: Repository, entity_id: str = "key") -> None:
        self._blocks = mode is OnUnavailable.BLOCK
        self._table_name = repository.table_name
        self._entity_id = entity_id

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if not self._blocks:
            return False
        assert isinstance(error, RateLimiterUnavailable), f"nothing was blocked: {error!r}"
        assert (error.stack_name, error.entity_id) == (self._table_name, self._entity_id)
        assert error.resource == "gpt-4"
        assert error.cause is not None
        return True


async def test_when_configuration_cannot_be_read(
    family: Repository, proxy: ChaosProxy, outage: Act, mode: OnUnavailable
) -> None:
    proxy.use(itertools.repeat(outage))
    with Verdict(mode, family, "new"):
        async with limiter_on(family).acquire(
            "new", "gpt-4", {"rpm": 1}, on_unavailable=mode
        ) as lease:
            assert lease.degraded
            await lease.consume(rpm=1)
            await lease.adjust(rpm=1)
    proxy.use(())
    assert await balance(family, "new") == {}


async def test_when_the_first_write_fails(
    family: Repository, proxy: ChaosProxy, outage: Act, mode: OnUnavailable
) -> None:
    proxy.use(itertools.repeat(outage))
    with Verdict(mode, family):
        async with limiter_on(family).acquire(
            "key", "gpt-4", {"rpm": 5}, on_unavailable=mode
        ) as lease:
            assert lease.degraded
            assert lease.consumed == {}
    proxy.use(())
    assert await balances(family) == WARM


def failing_for(entity_id: str, act: Act) -> Callable[[Request], Act]:
    """Writes to this entity's bucket fail; whatever else is asked passes."""
    key = f"BUCKET#{entity_id}#".encode()

    def choose(request: Request) -> Act:
        return act if request.operation == "UpdateItem" and key in request.body else Pass()

    return choose


async def test_when_the_write_to_the_parent_fails_the_child_is_refunded(
    family: Repository, proxy: ChaosProxy, outage: Act, mode: OnUnavailable
) -> None:
    proxy.use_for(failing_for("org", outage))
    with Verdict(mode, family):
        async with limiter_on(family).acquire(
            "key", "gpt-4", {"rpm": 5}, on_unavailable=mode
        ) as lease:
            assert lease.degraded
    proxy.use(())
    assert await balances(family) == WARM


async def test_when_an_answer_of_the_parent_is_lost_nothing_is_charged_twice(
    family: Repository, proxy: ChaosProxy
) -> None:
    acts = iter([DropAnswer()])
    proxy.use_for(
        lambda request: (
            next(acts, Pass())
            if request.operation == "UpdateItem" and b"BUCKET#org#" in request.body
            else Pass()
        )
    )
    async with limiter_on(family).acquire("key", "gpt-4", {"rpm": 5}) as lease:
        assert not lease.degraded
    assert await balances(family) == (94_000, 94_000)


async def test_when_corrections_cannot_be_written(
    family: Repository, proxy: ChaosProxy, outage: Act, mode: OnUnavailable
) -> None:
    with Verdict(mode, family):
        async with limiter_on(family).acquire(
            "key", "gpt-4", {"rpm": 5}, on_unavailable=mode
        ) as lease:
            await lease.adjust(rpm=2)
            proxy.use(itertools.repeat(outage))
    proxy.use(())
    assert await balances(family) == (94_000, 94_000)


async def test_when_the_refund_fails_the_body_s_own_error_surfaces(
    family: Repository,
    proxy: ChaosProxy,
    outage: Act,
    mode: OnUnavailable,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail() -> None:
        async with limiter_on(family).acquire("key", "gpt-4", {"rpm": 5}, on_unavailable=mode):
            proxy.use(itertools.repeat(outage))
            raise ZeroDivisionError

    with caplog.at_level(logging.WARNING, "zae_limiter"), pytest.raises(ZeroDivisionError):
        await fail()
    proxy.use(())
    assert caplog.text.count("Refund failed") == 2
    assert await balances(family) == (94_000, 94_000)


async def test_when_a_lease_cannot_consume_more(
    family: Repository, proxy: ChaosProxy, outage: Act, mode: OnUnavailable
) -> None:
    async with limiter_on(family).acquire("key", "gpt-4", {"rpm": 5}, on_unavailable=mode) as lease:
        proxy.use(itertools.repeat(outage))
        with Verdict(mode, family):
            await lease.consume(rpm=10)
        proxy.use(())
        assert lease.consumed == {"rpm": 10}
        await lease.consume(rpm=1)
    assert await balances(family) == (93_000, 93_000)


@pytest.mark.parametrize("stored", ["allow", "block"])
async def test_the_stored_mode_counts_where_the_call_has_none(
    family: Repository, proxy: ChaosProxy, stored: str
) -> None:
    await family.set_system_defaults([LIMIT], on_unavailable=stored)  # type: ignore[arg-type]
    limiter = limiter_on(family)
    async with limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass
    proxy.use(itertools.repeat(Reset()))
    with Verdict(OnUnavailable(stored), family):
        async with limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
            assert lease.degraded


# Longer than what is repeated because it failed quickly.
READ_TIMEOUT_S = 1.1


@pytest.mark.parametrize(
    "facade", ["asyncio", pytest.param("blocking", marks=pytest.mark.slow)], indirect=True
)
async def test_against_a_silent_server_a_write_is_waited_for_and_once_asked_after(
    facade: Driver, proxy: ChaosProxy, table: OwnTable
) -> None:
    url = url_through(proxy, table)
    options: dict[str, Any] = {"read_timeout": READ_TIMEOUT_S, "breaker_failures": 0}
    async with await open_repository(facade, url=url, **options) as repository:
        await repository.set_system_defaults([LIMIT])
        await repository.create_entity("org")
        await repository.create_entity("child", parent_id="org", cascade=True)
        limiter = limiter_on(repository)
        for entity_id in ("key", "child"):
            async with limiter.acquire(entity_id, "gpt-4", {"rpm": 1}):
                pass
        with silence(proxy):
            assert await asked_for(proxy, limiter, "key") == ["UpdateItem"] * 2
            of_both = await asked_for(proxy, limiter, "child")
            assert of_both == ["UpdateItem"] * 4
            assert await asked_for(proxy, limiter, "new") == ["Query"]
            assert not await limiter.is_available(timeout=0.1)


@contextmanager
def silence(proxy: ChaosProxy) -> Iterator[None]:
    """Requests are taken, and none is answered."""
    over = threading.Event()
    proxy.use(itertools.repeat(Hold(over)))
    try:
        yield
    finally:
        proxy.use(())
        over.set()


async def asked_for(proxy: ChaosProxy, limiter: RateLimiter, entity_id: str) -> list[str]:
    """What an acquire that cannot succeed asks of the server."""
    proxy.requests.clear()
    with pytest.raises(RateLimiterUnavailable):
        async with limiter.acquire(entity_id, "gpt-4", {"rpm": 1}):
            pass
    return [request.operation for request, _ in proxy.requests]


@pytest.mark.parametrize("transport", ["wire", pytest.param("botocore", marks=pytest.mark.slow)])
async def test_a_timeout_is_the_one_that_was_asked_for(
    facade: Driver, transport: str, proxy: ChaosProxy, table: OwnTable
) -> None:
    """Both ways to ask for it, by a server that answers later than the one and before the other."""
    url = url_through(proxy, table)
    patient = f"{url}&read_timeout=60"
    proxy.use(itertools.repeat(Delay(0.3)))
    with pytest.raises(StorageUnavailable):
        await open_repository(facade, url=patient, transport=transport, read_timeout=0.1)
    async with await open_repository(facade, url=patient, transport=transport) as repository:
        assert await repository.ping()
        proxy.use(())


async def test_a_task_that_is_cancelled_while_nobody_answers_ends(
    proxy: ChaosProxy, table: OwnTable
) -> None:
    url = url_through(proxy, table)
    async with await Repository.open(url=url, read_timeout=READ_TIMEOUT_S) as repository:
        limiter = RateLimiter(repository, default_limits=[LIMIT])
        async with limiter.acquire("key", "gpt-4", {"rpm": 1}):
            pass
        proxy.requests.clear()
        with silence(proxy), pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), limiter.acquire("key", "gpt-4", {"rpm": 1}):
                pass
        assert len(proxy.requests) <= 3
        assert (await balance(repository, "key"))["rpm"] in (98_000, 99_000)
