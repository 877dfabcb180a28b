"""A block that fails in any way gives back exactly what was taken, where it was taken."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.drivers import StoreKind, World, balance, limiter_on, take
from tests.support.servers.tables import OwnTable
from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository
from zae_limiter.testing import ManualClock, sync_memory_repository

RPM = Limit.per_hour("rpm", 100)
FULL = {"rpm": 100_000}


@pytest.fixture
async def family(world: World) -> Repository:
    """A key that cascades to an organisation."""
    repository = world.repository
    await repository.set_system_defaults([RPM])
    await repository.create_entity("org")
    await repository.create_entity("key", parent_id="org", cascade=True)
    return repository


async def balances(repository: Repository) -> tuple[dict[str, int], dict[str, int]]:
    return await balance(repository, "key"), await balance(repository, "org")


class Odd(BaseException):
    """An exception that is no `Exception`, like those that end programs."""


@pytest.mark.parametrize(
    "error",
    [ZeroDivisionError, asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit, Odd],
    ids=lambda error: error.__name__,
)
async def test_any_exception_in_the_body_refunds_every_level(
    limiter: RateLimiter, family: Repository, error: type[BaseException]
) -> None:
    await take(limiter, "key", rpm=1)
    before = await balances(family)
    failure = error()
    with pytest.raises(error) as raised:
        async with limiter.acquire("key", "gpt-4", {"rpm": 10}):
            raise failure
    assert raised.value is failure
    assert await balances(family) == before


async def test_a_refund_reaches_buckets_whose_limits_have_changed_meanwhile(
    world: World, family: Repository
) -> None:
    limiter, other = world.limiter(), limiter_on(world.stranger())
    both = [Limit.per_hour("rpm", 50), Limit.per_hour("tpm", 9)]

    async def fail_after_a_change() -> None:
        async with limiter.acquire("key", "gpt-4", {"rpm": 30}):
            await other.set_system_defaults(both)
            await take(other, "key", rpm=1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_after_a_change()
    assert await balances(family) == ({"rpm": 50_000, "tpm": 9_000}, {"rpm": 50_000, "tpm": 9_000})


async def test_a_refund_of_a_bucket_that_is_gone_creates_none(
    limiter: RateLimiter, family: Repository
) -> None:
    async def fail_after_a_deletion() -> None:
        async with limiter.acquire("key", "gpt-4", {"rpm": 30}):
            await family.delete_entity("org")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_after_a_deletion()
    assert await balances(family) == (FULL, {})


async def test_a_refund_never_exceeds_the_ceiling(
    limiter: RateLimiter, family: Repository, clock: ManualClock
) -> None:
    async def fail_much_later() -> None:
        async with limiter.acquire("key", "gpt-4", {"rpm": 30}):
            clock.advance(7200)
            await take(limiter, "key", rpm=0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_much_later()
    assert await balances(family) == (FULL, FULL)


async def async_repository(url: str) -> Repository:
    repository = await Repository.open(url=url)
    await repository.set_system_defaults([RPM])
    await repository.create_entity("org")
    await repository.create_entity("key", parent_id="org", cascade=True)
    return repository


@pytest.fixture
async def live(store_kind: StoreKind, place: Path | OwnTable) -> AsyncIterator[Repository]:
    """For asyncio alone, on real time."""
    async with await async_repository(World("asyncio", store_kind, place).url) as repository:
        yield repository


async def test_a_cancelled_task_refunds(live: Repository) -> None:
    limiter, inside = RateLimiter(live), asyncio.Event()

    async def work() -> None:
        async with limiter.acquire("key", "gpt-4", {"rpm": 10}):
            inside.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await inside.wait()
    assert task.cancel("enough")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await balances(live) == (FULL, FULL)


async def test_a_second_cancellation_does_not_stop_the_refund(live: Repository) -> None:
    limiter, inside = RateLimiter(live), asyncio.Event()

    async def work() -> None:
        async with limiter.acquire("key", "gpt-4", {"rpm": 10}):
            inside.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await inside.wait()
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    assert task.cancelled()
    assert await balances(live) == (FULL, FULL)


async def test_a_timeout_in_the_body_refunds_and_stays_a_timeout(live: Repository) -> None:
    limiter = RateLimiter(live)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01), limiter.acquire("key", "gpt-4", {"rpm": 10}):
            await asyncio.sleep(60)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(_hold_for_ever(limiter), 0.01)
    assert await balances(live) == (FULL, FULL)


async def _hold_for_ever(limiter: RateLimiter) -> None:
    async with limiter.acquire("key", "gpt-4", {"rpm": 10}):
        await asyncio.sleep(60)


async def test_a_sibling_s_failure_in_a_task_group_refunds(live: Repository) -> None:
    limiter = RateLimiter(live)

    async def fail() -> None:
        await asyncio.sleep(0.01)
        raise ZeroDivisionError

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_hold_for_ever(limiter))
            group.create_task(fail())

    with pytest.raises(ExceptionGroup):
        await work()
    assert await balances(live) == (FULL, FULL)


async def test_a_generator_that_is_closed_refunds(live: Repository) -> None:
    limiter = RateLimiter(live)

    async def stream() -> AsyncIterator[int]:
        async with limiter.acquire("key", "gpt-4", {"rpm": 10}):
            yield 1
            yield 2

    chunks = stream()
    async with contextlib.aclosing(chunks):  # type: ignore[type-var]
        assert await anext(chunks) == 1
        assert await balance(live, "key") == {"rpm": 90_000}
    assert await balances(live) == (FULL, FULL)


def test_a_blocking_generator_that_is_closed_refunds() -> None:
    repository = sync_memory_repository()
    limiter = SyncRateLimiter(repository, default_limits=[RPM])

    def stream() -> Iterator[int]:
        with limiter.acquire("key", "gpt-4", {"rpm": 10}):
            yield 1
            yield 2

    with closing(stream()) as chunks:  # type: ignore[type-var]
        assert next(chunks) == 1
    state = repository.get_bucket("key", "gpt-4", "rpm")
    assert state is not None
    assert state.tokens_milli == 100_000


class Lock:
    """The write lock of a file, held by another connection."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def __enter__(self) -> Lock:
        self._db.execute("BEGIN IMMEDIATE")
        return self

    def __exit__(self, *error: Any) -> None:
        self._db.execute("ROLLBACK")
        self._db.close()


async def test_a_cancellation_while_the_charge_is_in_flight_leaves_nothing_charged(
    tmp_path: Path,
) -> None:
    async with await async_repository(f"sqlite:///{tmp_path / 'limits.db'}") as repository:
        limiter = RateLimiter(repository)
        await take(limiter, "key", rpm=0)
        entered = False

        async def work() -> None:
            nonlocal entered
            async with limiter.acquire("key", "gpt-4", {"rpm": 10}):
                entered = True

        with Lock(tmp_path / "limits.db"):
            task = asyncio.create_task(work())
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.sleep(0.02)
            assert not task.done(), "the call that is in flight was abandoned"
        await asyncio.wait([task])
        assert task.cancelled()
        assert not entered, "the body ran though the task had been cancelled"
        assert await balances(repository) == (FULL, FULL)


async def test_a_timeout_while_the_charge_is_in_flight_is_a_timeout(tmp_path: Path) -> None:
    """The timeout must be raised in the block it belongs to, not at a later await outside of it."""
    async with await async_repository(f"sqlite:///{tmp_path / 'limits.db'}") as repository:
        limiter = RateLimiter(repository)
        await take(limiter, "key", rpm=0)
        lock = Lock(tmp_path / "limits.db").__enter__()
        asyncio.get_running_loop().call_later(0.1, lock.__exit__)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02), limiter.acquire("key", "gpt-4", {"rpm": 10}):
                pass
        await asyncio.sleep(0)
        assert await balances(repository) == (FULL, FULL)


@pytest.mark.parametrize(
    "call",
    [
        lambda limiter: limiter.create_entity("new"),
        lambda limiter: limiter.set_limits("key", [RPM]),
        lambda limiter: limiter.delete_entity("key"),
        lambda limiter: limiter.repository.register_namespace("new"),
        lambda limiter: limiter.repository.delete_namespace("new"),
    ],
    ids=["create_entity", "set_limits", "delete_entity", "register", "delete_namespace"],
)
async def test_a_timeout_of_any_call_is_raised_where_it_belongs(tmp_path: Path, call: Any) -> None:
    async with await async_repository(f"sqlite:///{tmp_path / 'limits.db'}") as repository:
        lock = Lock(tmp_path / "limits.db").__enter__()
        asyncio.get_running_loop().call_later(0.06, lock.__exit__)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await call(RateLimiter(repository))
        await asyncio.sleep(0)


async def test_a_cancellation_while_the_corrections_are_in_flight_keeps_them(
    tmp_path: Path,
) -> None:
    async with await async_repository(f"sqlite:///{tmp_path / 'limits.db'}") as repository:
        limiter, settled = RateLimiter(repository), asyncio.Event()
        lock = Lock(tmp_path / "limits.db")

        async def work() -> None:
            async with limiter.acquire("key", "gpt-4", {"rpm": 10}) as lease:
                await lease.adjust(rpm=5)
                lock.__enter__()
            settled.set()

        task = asyncio.create_task(work())
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.sleep(0.02)
        assert not task.done(), "the corrections were abandoned"
        lock.__exit__()
        await asyncio.wait([task])
        assert task.cancelled()
        assert not settled.is_set()
        assert await balances(repository) == ({"rpm": 85_000}, {"rpm": 85_000})


# A parent that ignores interrupts would make the program ignore them.
HEAR_INTERRUPTS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
INTERRUPTED = """
    import sys, time
    from zae_limiter import Limit, SyncRateLimiter, SyncRepository

    repository = SyncRepository.open(url=sys.argv[1])
    limiter = SyncRateLimiter(repository, default_limits=[Limit.per_hour("rpm", 100)])
    with limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass
    with limiter.acquire("key", "gpt-4", {"rpm": 10}):
        print("inside", flush=True)
        time.sleep(60)
"""

INTERRUPTED_ASYNC = """
    import asyncio, sys
    from zae_limiter import Limit, RateLimiter, Repository

    async def main():
        repository = await Repository.open(url=sys.argv[1])
        limiter = RateLimiter(repository, default_limits=[Limit.per_hour("rpm", 100)])
        async with limiter.acquire("key", "gpt-4", {"rpm": 1}):
            pass
        async with limiter.acquire("key", "gpt-4", {"rpm": 10}):
            print("inside", flush=True)
            await asyncio.sleep(60)

    asyncio.run(main())
"""


@pytest.mark.parametrize("program", [INTERRUPTED, INTERRUPTED_ASYNC], ids=["blocking", "asyncio"])
def test_control_c_in_the_body_refunds(program: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'limits.db'}"
    process = subprocess.Popen(
        [sys.executable, "-c", HEAR_INTERRUPTS + textwrap.dedent(program), url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "inside\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in errors
    with SyncRepository.connect(url=url) as repository:
        state = repository.get_bucket("key", "gpt-4", "rpm")
    assert state is not None
    assert state.tokens_milli == 99_000
