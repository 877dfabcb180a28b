"""A leader and its followers share the failure of their write, and nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.crowd import Crowd, Gate, Hook, crowd, take, until
from tests.support.drivers import Driver
from zae_limiter import Limit, OnUnavailable, RateLimiterUnavailable
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.exceptions import StorageUnavailable
from zae_limiter.core.writes import Refill, Write
from zae_limiter.flows.coalesce import queue
from zae_limiter.local.bounded import Bounded

RPM = Limit.per_minute("rpm", 6000)
FULL = 6_000_000


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'limits.db'}"


def on_write(number: int, act: Callable[[], Awaitable[None]]) -> Hook:
    """Call a function at the n-th write from now on."""
    count = 0

    async def hook(address: BucketAddress, write: Write) -> None:
        nonlocal count
        count += 1
        if count == number:
            await act()

    return hook


def failing(error: BaseException) -> Callable[[], Awaitable[None]]:
    async def fail() -> None:
        raise error

    return fail


async def ready(it: Crowd) -> None:
    """Make the bucket, full and acquired once."""
    await take(it.limiter, rpm=0)


async def assert_untouched(it: Crowd) -> None:
    bucket = await it.bucket()
    assert bucket.cells["rpm"].tokens_milli == FULL
    assert (bucket.cells["rpm"].consumed_milli, bucket.acquires) == (0, 1)


async def test_a_failed_write_fails_only_the_callers_of_its_batch(driver: Driver, url: str) -> None:
    async with crowd(driver, url, [RPM]) as it:
        await ready(it)
        lost = StorageUnavailable("down", retryable=False)
        it.buckets.before = on_write(2, failing(lost))
        first, *others = await it.meet(*(take(it.limiter, rpm=1) for _ in range(10)))
        assert first is True
        assert [type(other) for other in others] == [RateLimiterUnavailable] * 9
        assert all(other.cause is lost for other in others)
        assert await take(it.limiter, rpm=1)
        assert await it.tokens() == FULL - 2000
        assert (await it.bucket()).acquires == 3


async def test_each_follower_s_own_mode_decides_what_a_failure_means(
    driver: Driver, url: str
) -> None:
    async with crowd(driver, url, [RPM]) as it:
        await ready(it)
        it.buckets.before = on_write(2, failing(StorageUnavailable("down", retryable=False)))

        async def lenient() -> bool:
            allow = OnUnavailable.ALLOW
            async with it.limiter.acquire(
                "key-1", "gpt-4", {"rpm": 1}, on_unavailable=allow
            ) as lease:
                return lease.degraded

        works = [take(it.limiter, rpm=1), lenient(), take(it.limiter, rpm=1), lenient()]
        first, second, third, fourth = await it.meet(*works)
        assert (first, second, fourth) == (True, True, True)
        assert isinstance(third, RateLimiterUnavailable)
        assert await it.tokens() == FULL - 1000


@pytest.mark.parametrize("landed", [True, False])
async def test_a_lost_answer_leaves_no_caller_of_the_batch_charged(
    driver: Driver, url: str, landed: bool
) -> None:
    async with crowd(driver, url, [RPM]) as it:
        await ready(it)
        hook = on_write(2, failing(StorageUnavailable("lost", retryable=False, ambiguous=True)))
        if landed:
            it.buckets.after = hook
        else:
            it.buckets.before = hook
        first, *others = await it.meet(*(take(it.limiter, rpm=n) for n in range(30)))
        assert first is True
        assert [type(other) for other in others] == [RateLimiterUnavailable] * 29
        bucket = await it.bucket()
        assert bucket.cells["rpm"].tokens_milli == FULL
        assert (bucket.cells["rpm"].consumed_milli, bucket.acquires) == (0, 2)


@pytest.mark.parametrize("landed", [True, False])
async def test_a_lost_answer_is_found_out_for_the_whole_batch(
    driver: Driver, url: str, landed: bool
) -> None:
    async with crowd(driver, url, [RPM]) as it:
        await ready(it)
        hook = on_write(2, failing(StorageUnavailable("lost", ambiguous=True)))
        if landed:
            it.buckets.after = hook
        else:
            it.buckets.before = hook
        assert all(await it.meet(*(take(it.limiter, rpm=n) for n in range(30))))
        assert (await it.bucket()).cells["rpm"].consumed_milli == sum(range(30)) * 1000
        assert (await it.bucket()).acquires == 31


async def test_a_bug_in_the_store_is_raised_to_the_whole_batch(driver: Driver, url: str) -> None:
    async with crowd(driver, url, [RPM]) as it:
        await ready(it)
        bug = TypeError("unsupported operand")
        it.buckets.before = on_write(2, failing(bug))
        outcomes = await it.meet(*(take(it.limiter, rpm=1) for _ in range(5)))
        assert outcomes == [True, bug, bug, bug, bug]
        assert await it.tokens() == FULL - 1000


async def test_corrections_of_a_batch_share_its_failure(
    driver: Driver, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with crowd(driver, url, [RPM]) as it:
        await ready(it)
        inside = [it.limiter.acquire("key-1", "gpt-4", {"rpm": 10}) for _ in range(4)]
        for held in inside:
            await held.__aenter__()
        it.buckets.before = on_write(2, failing(StorageUnavailable("down", retryable=False)))
        with caplog.at_level(logging.WARNING, "zae_limiter"):
            failed = LookupError()
            await it.meet(*(held.__aexit__(LookupError, failed, None) for held in inside))
        assert caplog.text.count("the tokens stay charged") == 3
        assert await it.tokens() == FULL - 30_000


async def test_a_charge_is_turned_away_from_a_full_write_queue(
    driver: Driver, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MAX_WAITING", 3)
    async with crowd(driver, url, [RPM]) as it:
        await ready(it)
        first = await it.at_gate(take(it.limiter, rpm=1))
        others = await it.behind(*(take(it.limiter, rpm=1) for _ in range(3)))
        with pytest.raises(RateLimiterUnavailable, match="wait for"):
            await it.call(take(it.limiter, rpm=1))
        it.buckets.gate.open()
        assert all(await asyncio.gather(first, *others))
        assert await it.tokens() == FULL - 4000


async def test_a_refund_is_let_into_a_full_write_queue(
    driver: Driver, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MAX_WAITING", 3)
    async with crowd(driver, url, [RPM]) as it:
        await ready(it)
        held = it.limiter.acquire("key-1", "gpt-4", {"rpm": 100})
        await held.__aenter__()
        first = await it.at_gate(take(it.limiter, rpm=1))
        others = await it.behind(*(take(it.limiter, rpm=1) for _ in range(3)))
        failed = LookupError()
        refund = it.call(held.__aexit__(LookupError, failed, None))
        await until(lambda: it.in_line() == 4 or refund.done())
        it.buckets.gate.open()
        assert all(await asyncio.gather(first, *others))
        await refund
        assert await it.tokens() == FULL - 4000


class Odd(BaseException):
    """An exception that is no `Exception`, like those that end programs."""


async def test_an_interrupt_is_raised_to_the_leader_though_its_part_was_done(url: str) -> None:
    """The limits have changed, and one caller of the batch brought the old ones. So the leader
    charges all of them one by one; it is interrupted when it has charged its own part and charges
    the next. The one for which nothing was sent goes on by itself."""
    async with crowd("blocking", url, [RPM]) as it:
        await ready(it)
        other = it.other()
        await other.set_system_defaults([Limit.per_minute("rpm", 6000), Limit.per_day("tpm", 9)])
        await take(other, rpm=0)
        interrupt = Odd()

        async def strike(address: BucketAddress, write: Write) -> None:
            bucket = (await it.origin.scope.store.buckets.read([address]))[address]
            if bucket.cells["rpm"].consumed_milli >= 10_000:
                it.buckets.before = None
                raise interrupt

        async def bring(amount: int) -> None:
            async with it.limiter.acquire("key-1", "gpt-4", {"rpm": amount}, limits=[RPM]):
                pass

        it.buckets.before = strike
        works = [take(it.limiter, rpm=0), take(it.limiter, rpm=10), bring(20)]
        first, pilot, struck, last = await it.meet(*works, take(it.limiter, rpm=30))
        assert first is True
        assert pilot is interrupt
        assert isinstance(struck, RateLimiterUnavailable)
        assert last is True
        assert await it.tokens() == FULL - 30_000


async def cancelled(task: asyncio.Future[Any]) -> bool:
    """Return whether a task ends as a cancelled task does."""
    await asyncio.wait([task], timeout=10)
    return task.cancelled()


async def test_a_cancelled_caller_leaves_the_write_queue(url: str) -> None:
    async with crowd("asyncio", url, [RPM]) as it:
        await ready(it)
        first = await it.at_gate(take(it.limiter, rpm=1))
        riders = await it.behind(*(take(it.limiter, rpm=10) for _ in range(5)))
        riders[0].cancel()
        riders[3].cancel()
        assert await cancelled(riders[0])
        assert await cancelled(riders[3])
        assert it.in_line() == 3
        it.buckets.gate.open()
        served = await asyncio.gather(first, riders[1], riders[2], riders[4])
        assert all(served)
        assert await it.tokens() == FULL - 31_000
        assert (await it.bucket()).acquires == 5


async def test_a_chosen_leader_that_is_cancelled_hands_over(url: str) -> None:
    async with crowd("asyncio", url, [RPM]) as it:
        await ready(it)
        first = await it.at_gate(take(it.limiter, rpm=1))
        pilot, *others = await it.behind(*(take(it.limiter, rpm=10) for _ in range(4)))
        leave = it.scope.local.write_queues.leave

        def leave_and_cancel(address: BucketAddress, owner: object) -> None:
            leave(address, owner)
            pilot.cancel()

        it.scope.local.write_queues.leave = leave_and_cancel  # type: ignore[method-assign]
        it.buckets.gate.open()
        assert all(await asyncio.gather(first, *others))
        assert await cancelled(pilot)
        assert await it.tokens() == FULL - 31_000


async def in_the_air(it: Crowd, riders: int) -> tuple[list[asyncio.Future[Any]], Gate]:
    """Return the calls of a batch whose write is under way until the gate is opened."""
    later = Gate("asyncio")
    later.close()
    it.buckets.before = on_write(2, later.passed)
    first = await it.at_gate(take(it.limiter, rpm=0))
    begun = await it.behind(*(take(it.limiter, rpm=10) for _ in range(riders)))
    it.buckets.gate.open()
    assert await first
    await until(lambda: it.buckets.under_way[it.home()] == 1 and it.in_line() == 0)
    return begun, later


@pytest.mark.parametrize("who", [0, 1, 3], ids=["the pilot", "a rider", "the last rider"])
async def test_a_follower_that_is_cancelled_refunds_its_part(url: str, who: int) -> None:
    async with crowd("asyncio", url, [RPM]) as it:
        await ready(it)
        riders, later = await in_the_air(it, 4)
        riders[who].cancel()
        await asyncio.sleep(0.01)
        assert not riders[who].done(), "a charge that is under way was abandoned"
        later.open()
        assert await cancelled(riders.pop(who))
        assert all(await asyncio.gather(*riders))
        assert await it.tokens() == FULL - 30_000
        assert (await it.bucket()).acquires == 5


async def test_a_whole_batch_may_be_cancelled_twice(url: str) -> None:
    async with crowd("asyncio", url, [RPM]) as it:
        await ready(it)
        riders, later = await in_the_air(it, 4)
        behind = await it.behind(*(take(it.limiter, rpm=10) for _ in range(3)))
        for _ in range(3):
            for task in (*riders, *behind):
                task.cancel()
            await asyncio.sleep(0)
        later.open()
        await asyncio.wait([*riders, *behind], timeout=10)
        assert all(task.cancelled() for task in (*riders, *behind))
        bucket = await it.bucket()
        assert bucket.cells["rpm"].tokens_milli == FULL
        assert bucket.acquires == 2


@pytest.mark.parametrize("boarded", [False, True])
async def test_a_timeout_around_acquire_is_a_timeout_and_charges_nothing(
    url: str, boarded: bool
) -> None:
    async with crowd("asyncio", url, [RPM]) as it:
        await ready(it)

        patience = asyncio.timeout(None)

        async def hurried() -> None:
            async with patience, it.limiter.acquire("key-1", "gpt-4", {"rpm": 10}):
                pytest.fail("the body ran")

        later = Gate("asyncio")
        it.buckets.before = on_write(2, later.passed)
        first = await it.at_gate(take(it.limiter, rpm=0))
        late, *others = await it.behind(hurried(), *(take(it.limiter, rpm=1) for _ in range(2)))
        if boarded:
            later.close()
            it.buckets.gate.open()
            await until(lambda: it.in_line() == 0)
        patience.reschedule(asyncio.get_running_loop().time())
        await until(patience.expired)
        later.open()
        await asyncio.wait([late], timeout=10)
        it.buckets.gate.open()
        assert isinstance(late.exception(), TimeoutError)
        assert all(await asyncio.gather(first, *others))
        assert await it.tokens() == FULL - 2000


async def test_a_queued_refund_outlives_a_cancellation_that_is_raised_later(
    url: str,
) -> None:
    async with crowd("asyncio", url, [RPM]) as it:
        await ready(it)
        inside, fail = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            try:
                async with it.limiter.acquire("key-1", "gpt-4", {"rpm": 100}):
                    inside.set()
                    await fail.wait()
                    raise LookupError
            except LookupError:
                pytest.fail("who was cancelled went on")

        worker = it.call(work())
        await inside.wait()
        first = await it.at_gate(take(it.limiter, rpm=1))
        fail.set()
        await until(lambda: it.in_line() == 1)
        for _ in range(5):
            worker.cancel()
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        assert not worker.done(), "the refund was given up"
        it.buckets.gate.open()
        assert await first
        assert await cancelled(worker)
        assert await it.tokens() == FULL - 1000


async def test_a_queued_correction_outlives_a_cancellation_that_is_raised_later(
    url: str,
) -> None:
    async with crowd("asyncio", url, [RPM]) as it:
        await ready(it)
        inside, leave = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            async with it.limiter.acquire("key-1", "gpt-4", {"rpm": 100}) as lease:
                await lease.adjust(rpm=50)
                inside.set()
                await leave.wait()
            pytest.fail("who was cancelled went on")

        worker = it.call(work())
        await inside.wait()
        first = await it.at_gate(take(it.limiter, rpm=1))
        leave.set()
        await until(lambda: it.in_line() == 1)
        for _ in range(5):
            worker.cancel()
            await asyncio.sleep(0)
        it.buckets.gate.open()
        assert await first
        assert await cancelled(worker)
        assert await it.tokens() == FULL - 151_000


async def test_a_cancellation_while_a_refused_request_is_undone_is_not_lost(url: str) -> None:
    """The parent is short, so the child's charge is refunded, and the refund is queued behind other
    writes."""
    async with crowd("asyncio", url, [RPM], refusal_cache_ttl=0) as it:
        await it.limiter.create_entity("org")
        await it.limiter.create_entity("key-1", parent_id="org", cascade=True)
        await it.limiter.set_limits("org", [Limit.per_minute("rpm", 100)])
        # This process has seen the parent before another one uses it up.
        object.__setattr__(it.scope.local, "images", Bounded(100))
        await ready(it)
        assert await take(it.other(), "org", rpm=100)
        it.buckets.gate_for = {"key-1"}
        others = []

        async def get_in_between() -> None:
            it.buckets.gate.close()
            others.extend(await it.behind(take(it.limiter, rpm=0)))

        def of_the_child(address: BucketAddress, write: Write) -> Awaitable[None]:
            return hook(address, write) if address.entity_id == "key-1" else asyncio.sleep(0)

        hook = on_write(1, get_in_between)
        it.buckets.after = of_the_child
        refused = it.call(take(it.limiter, rpm=100))
        await until(lambda: len(others) == 1 and it.in_line() == 1)
        refused.cancel()
        await asyncio.sleep(0.01)
        it.buckets.gate.open()
        assert await cancelled(refused)
        await asyncio.wait(others)
        assert await it.tokens() == FULL


async def test_a_correction_stands_though_its_bucket_cannot_be_prolonged(
    driver: Driver, url: str
) -> None:
    """A caller that was told of a failure would charge again."""
    async with crowd(driver, url, [RPM]) as it:

        async def fail(address: BucketAddress, write: Write) -> None:
            if isinstance(write, Refill):
                raise StorageUnavailable("away", retryable=False)

        async with it.limiter.acquire("key-1", "gpt-4", {"rpm": 1}) as lease:
            it.buckets.before = fail
            await lease.adjust(rpm=10**9)
        assert await it.tokens() == FULL - 1000 * (1 + 10**9)
