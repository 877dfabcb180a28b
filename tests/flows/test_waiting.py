"""`acquire(timeout=...)` waits its turn, and never for tokens that cannot come in time."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.drivers import World, balance, take
from zae_limiter import (
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    SyncRateLimiter,
    SyncRepository,
)
from zae_limiter.flows.scope import Scope
from zae_limiter.testing import ManualClock, memory_repository, sync_memory_repository

RPM = Limit.per_minute("rpm", 60)
ONE_A_DAY = Limit.per_day("rpm", 1)
QUICK = Limit("rpm", 1, 100, 1)


async def wait_for(limiter: RateLimiter, amount: int, timeout: float) -> None:
    async with limiter.acquire("key-1", "gpt-4", {"rpm": amount}, timeout=timeout):
        pass


async def test_an_acquire_with_a_timeout_waits_exactly_as_long_as_needed(world: World) -> None:
    limiter = world.limiter(default_limits=[RPM])
    start_ms = world.clock.now_ms()
    await wait_for(limiter, 60, 0)
    await wait_for(limiter, 7, 30)
    assert world.clock.now_ms() == start_ms + 7_000
    assert await balance(world.repository) == {"rpm": 0}


async def test_an_acquire_with_a_timeout_waits_for_every_level(world: World) -> None:
    limiter = world.limiter(default_limits=[RPM])
    await limiter.create_entity("key-1", parent_id="org", cascade=True)
    await limiter.set_limits("org", [Limit.per_minute("rpm", 30)])
    start_ms = world.clock.now_ms()
    await take(limiter, "org", rpm=30)
    await take(limiter, "key-1", rpm=0)
    await wait_for(limiter, 30, 60)
    assert world.clock.now_ms() == start_ms + 60_000
    await wait_for(limiter, 30, 60)
    assert await balance(world.repository, "org") == {"rpm": 0}


async def test_a_waiting_request_that_can_never_fit_is_refused_at_once(world: World) -> None:
    limiter = world.limiter(default_limits=[RPM])
    start_ms = world.clock.now_ms()
    with pytest.raises(RateLimitExceeded) as refused:
        await wait_for(limiter, 61, 3600)
    assert not refused.value.retryable
    assert world.clock.now_ms() == start_ms


async def test_a_waiting_request_that_cannot_fit_in_time_is_refused_at_once(world: World) -> None:
    limiter = world.limiter(default_limits=[RPM])
    await take(limiter, rpm=60)
    start_ms = world.clock.now_ms()
    with pytest.raises(RateLimitExceeded) as refused:
        await wait_for(limiter, 10, 9.999)
    assert refused.value.retry_after_seconds == 10
    assert world.clock.now_ms() == start_ms
    assert await balance(world.repository) == {"rpm": 0}
    with pytest.raises(RateLimitExceeded):
        await wait_for(limiter, 1, 0)


@pytest.mark.parametrize("period_s", [1, 7, 61])
async def test_a_timeout_of_retry_after_seconds_is_enough(world: World, period_s: int) -> None:
    """The wait is exact to the millisecond, though seconds are floats."""
    limiter = world.limiter(default_limits=[Limit("rpm", 1_000, 1_000, period_s)])
    await take(limiter, rpm=1_000)
    for amount in range(1, 150):
        with pytest.raises(RateLimitExceeded) as refused:
            await take(limiter, rpm=amount)
        start_ms = world.clock.now_ms()
        wait_s = refused.value.retry_after_seconds
        await wait_for(limiter, amount, wait_s)
        assert world.clock.now_ms() == start_ms + round(wait_s * 1000)


async def test_a_lease_that_was_waited_for_is_refunded_if_its_block_fails(world: World) -> None:
    limiter = world.limiter(default_limits=[RPM])
    await take(limiter, rpm=60)
    with pytest.raises(ZeroDivisionError):
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 10}, timeout=10):
            raise ZeroDivisionError
    assert await balance(world.repository) == {"rpm": 10_000}


def waiting(scope: Scope) -> int:
    """Return how many callers wait in this process."""
    return sum(len(queue.places) for queue in scope.local.wait_queues._queues.values())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)


def until_blocking(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'limits.db'}"


async def test_waiting_tasks_are_served_in_order_of_arrival(url: str) -> None:
    async with await Repository.open(url=url) as repository:
        limiter = RateLimiter(repository, default_limits=[QUICK])
        await take(limiter, rpm=1)
        served: list[int] = []

        async def work(number: int) -> None:
            async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, timeout=30):
                served.append(number)

        tasks = []
        for number in range(8):
            tasks.append(asyncio.create_task(work(number)))
            await until(lambda: waiting(repository.scope) > 0 or bool(served))
        await asyncio.gather(*tasks)
        assert served == list(range(8))
        assert waiting(repository.scope) == 0


def test_waiting_threads_are_served_in_order_of_arrival(url: str) -> None:
    with SyncRepository.open(url=url) as repository:
        limiter = SyncRateLimiter(repository, default_limits=[ONE_A_DAY])
        served: list[int] = []

        def work(number: int) -> None:
            try:
                with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, timeout=86_400 * 30):
                    served.append(number)
                    raise ZeroDivisionError
            except ZeroDivisionError:
                return

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        holder = limiter.acquire("key-1", "gpt-4", {"rpm": 1})
        holder.__enter__()
        for number, thread in enumerate(threads):
            thread.start()
            until_blocking(lambda number=number: waiting(repository.scope) == number + 1)  # type: ignore[misc]
        holder.__exit__(ValueError, ValueError(), None)
        for thread in threads:
            thread.join(timeout=20)
            assert not thread.is_alive()
        assert served == list(range(8))
        assert waiting(repository.scope) == 0


async def test_a_small_request_does_not_overtake_a_large_one(url: str) -> None:
    async with await Repository.open(url=url) as repository:
        limiter = RateLimiter(repository, default_limits=[Limit("rpm", 10, 100, 1)])
        await take(limiter, rpm=10)
        served: list[int] = []

        async def work(amount: int) -> None:
            async with limiter.acquire("key-1", "gpt-4", {"rpm": amount}, timeout=30):
                served.append(amount)

        tasks = []
        for count, amount in enumerate((10, 1, 2)):
            tasks.append(asyncio.create_task(work(amount)))
            await until(lambda count=count: waiting(repository.scope) == count + 1)  # type: ignore[misc]
        await asyncio.gather(*tasks)
        assert served == [10, 1, 2]


async def test_a_refund_wakes_the_first_waiter(url: str) -> None:
    async with await Repository.open(url=url) as repository:
        limiter = RateLimiter(repository, default_limits=[ONE_A_DAY])
        holder = limiter.acquire("key-1", "gpt-4", {"rpm": 1})
        await holder.__aenter__()
        waiter = asyncio.create_task(wait_for(limiter, 1, 86_400 * 2))
        await until(lambda: waiting(repository.scope) == 1)
        assert not waiter.done()
        await holder.__aexit__(ValueError, ValueError(), None)
        await asyncio.wait_for(waiter, 10)


async def test_a_release_wakes_the_first_waiter(url: str) -> None:
    async with await Repository.open(url=url) as repository:
        limiter = RateLimiter(repository, default_limits=[Limit.per_day("rpm", 2)])

        async def hold(inside: asyncio.Event, leave: asyncio.Event) -> None:
            async with limiter.acquire("key-1", "gpt-4", {"rpm": 2}) as lease:
                inside.set()
                await leave.wait()
                await lease.release(rpm=1)

        inside, leave = asyncio.Event(), asyncio.Event()
        holder = asyncio.create_task(hold(inside, leave))
        await inside.wait()
        waiter = asyncio.create_task(wait_for(limiter, 1, 86_400 * 2))
        await until(lambda: waiting(repository.scope) == 1)
        leave.set()
        await asyncio.wait_for(waiter, 10)
        await holder


async def test_a_cancelled_waiter_frees_its_place(url: str) -> None:
    async with await Repository.open(url=url) as repository:
        limiter = RateLimiter(repository, default_limits=[ONE_A_DAY])
        holder = limiter.acquire("key-1", "gpt-4", {"rpm": 1})
        await holder.__aenter__()
        tasks = []
        for number in range(3):
            tasks.append(asyncio.create_task(wait_for(limiter, 1, 86_400 * 5)))
            await until(lambda number=number: waiting(repository.scope) == number + 1)  # type: ignore[misc]
        for task in tasks[:2]:
            task.cancel()
        await asyncio.wait(tasks[:2])
        assert all(task.cancelled() for task in tasks[:2])
        assert waiting(repository.scope) == 1
        await holder.__aexit__(ValueError, ValueError(), None)
        await asyncio.wait_for(tasks[2], 10)
        assert await balance(repository) == {"rpm": 0}


async def test_a_waiter_that_times_out_itself_frees_its_place(url: str) -> None:
    async with await Repository.open(url=url) as repository:
        limiter = RateLimiter(repository, default_limits=[ONE_A_DAY])
        await take(limiter, rpm=1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await wait_for(limiter, 1, 86_400 * 2)
        assert waiting(repository.scope) == 0
        assert await balance(repository) == {"rpm": 0}


async def test_a_waiter_that_cannot_be_served_in_time_behind_others_is_refused() -> None:
    async with await memory_repository() as repository:
        limiter = RateLimiter(repository, default_limits=[ONE_A_DAY])
        await take(limiter, rpm=1)
        first = asyncio.create_task(wait_for(limiter, 1, 86_400 * 2))
        await until(lambda: waiting(repository.scope) == 1)
        with pytest.raises(RateLimitExceeded) as refused:
            await wait_for(limiter, 1, 86_400 * 1.5)
        assert 86_400 * 1.5 < refused.value.retry_after_seconds <= 86_400 * 2
        second = asyncio.create_task(wait_for(limiter, 1, 86_400 * 3))
        await until(lambda: waiting(repository.scope) == 2)
        for task in (first, second):
            task.cancel()
        await asyncio.wait([first, second])


async def test_a_request_that_never_fits_its_parent_is_refused_in_the_queue() -> None:
    async with await memory_repository() as repository:
        limiter = RateLimiter(repository, default_limits=[Limit.per_day("rpm", 10)])
        await take(limiter, "key-1", rpm=10)
        await limiter.create_entity("key-1", parent_id="org", cascade=True)
        await limiter.set_limits("org", [Limit.per_day("rpm", 5)])
        first = asyncio.create_task(wait_for(limiter, 1, 86_400 * 2))
        await until(lambda: waiting(repository.scope) == 1)
        refusal = asyncio.create_task(wait_for(limiter, 6, 86_400 * 9))
        await asyncio.wait([refusal], timeout=2)
        first.cancel()
        assert refusal.done()
        error = refusal.exception()
        assert isinstance(error, RateLimitExceeded)
        assert not error.retryable
        assert math.isinf(error.retry_after_seconds)


def test_a_refund_between_the_refusal_and_the_queue_is_not_missed() -> None:
    """The refund comes too late for the attempt and too early to wake a waiter."""
    clock = ManualClock()
    repository = sync_memory_repository(clock=clock)
    limiter = SyncRateLimiter(repository, default_limits=[ONE_A_DAY])
    holder = limiter.acquire("key-1", "gpt-4", {"rpm": 1})
    holder.__enter__()
    queues = repository.scope.local.wait_queues
    join = queues.join

    class Refunding:
        def __getattr__(self, name: str) -> object:
            return getattr(queues, name)

        def join(self, place: object) -> object:
            holder.__exit__(ValueError, ValueError(), None)
            return join(place)  # type: ignore[arg-type]

    object.__setattr__(repository.scope.local, "wait_queues", Refunding())
    start_ms = clock.now_ms()
    with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, timeout=86_400):
        assert clock.now_ms() == start_ms


def test_a_refund_during_an_attempt_is_not_missed() -> None:
    """Woken by one refund, the first waiter still finds too little; the next refund lands when it
    has just been refused again."""
    repository = sync_memory_repository()
    limiter = SyncRateLimiter(repository, default_limits=[Limit.per_day("rpm", 3)])
    holders = [limiter.acquire("key-1", "gpt-4", {"rpm": 1}) for _ in range(3)]
    for holder in holders:
        holder.__enter__()
    waiter = threading.Thread(target=_wait_for_two, args=(limiter,), daemon=True)
    waiter.start()
    until_blocking(lambda: waiting(repository.scope) == 1)
    refusals = repository.scope.local.refusals

    class Refunding:
        """Where a refusal arrives that the store has just answered with."""

        def __getattr__(self, name: str) -> object:
            return getattr(refusals, name)

        def keep(self, *refusal: object) -> None:
            if len(holders) == 2:
                holders.pop().__exit__(ValueError, ValueError(), None)
            refusals.keep(*refusal)  # type: ignore[arg-type]

    object.__setattr__(repository.scope.local, "refusals", Refunding())
    holders.pop().__exit__(ValueError, ValueError(), None)
    waiter.join(timeout=10)
    assert not waiter.is_alive()
    assert len(holders) == 1


def _wait_for_two(limiter: SyncRateLimiter) -> None:
    with limiter.acquire("key-1", "gpt-4", {"rpm": 2}, timeout=86_400):
        pass


@pytest.mark.slow
async def test_eight_thousand_waiters_are_all_served_in_order() -> None:
    """With a cost per waiter that grows with their number, this takes minutes, and many are
    refused."""
    async with await Repository.open(url="memory://") as repository:
        limiter = RateLimiter(repository, default_limits=[Limit.per_second("rps", 2000)])
        async with limiter.acquire("key-1", "gpt-4", {"rps": 2000}):
            pass
        order: list[int] = []

        async def wait(number: int) -> None:
            async with limiter.acquire("key-1", "gpt-4", {"rps": 1}, timeout=30):
                order.append(number)

        await asyncio.gather(*(wait(number) for number in range(8000)))
        assert order == list(range(8000))
