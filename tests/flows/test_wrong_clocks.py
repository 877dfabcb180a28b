"""A wrong clock harms nobody for long: a refill time that is ahead is set back, for nothing."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from typing import cast

import pytest

from tests.support.drivers import Awaited, World, limiter_on, take
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.validation import SET_BACK
from zae_limiter.core.writes import Refill
from zae_limiter.flows.acquire.refusal_cache import RefusalCache
from zae_limiter.runtime.asyncio_driver import AsyncioIo
from zae_limiter.runtime.blocking import BlockingIo
from zae_limiter.testing import ManualClock

TEN = Limit.per_second("tps", 10)
HOUR_S, YEAR_S = 3600, 366 * 86_400
STEPS = pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S, YEAR_S, -YEAR_S])


class OffClock:
    """A clock that is ahead of another by so many seconds."""

    def __init__(self, right: ManualClock, ahead_s: float) -> None:
        self._right = right
        self._ahead_ms = round(ahead_s * 1000)

    def now_ms(self) -> int:
        return self._right.now_ms() + self._ahead_ms

    def pass_time(self, seconds: float) -> bool:
        return self._right.pass_time(seconds)


def off_by(world: World, ahead_s: float) -> RateLimiter:
    """A client of the store in another process, whose clock is wrong."""
    other = world.stranger()
    inner = other.inner if isinstance(other, Awaited) else other
    clock = OffClock(world.clock, ahead_s)
    io = BlockingIo(clock) if isinstance(other, Awaited) else AsyncioIo(clock)
    local = replace(inner.scope.local, refusals=RefusalCache(ttl_seconds=1))
    scope = replace(inner.scope, io=io, local=local)
    twin = type(inner).on_scope(scope, inner.namespace_name, owns_store=False)
    return limiter_on(cast(Repository, Awaited(twin) if isinstance(other, Awaited) else twin))


async def admitted(limiter: RateLimiter, times: int) -> int:
    """How many of so many acquires are admitted."""
    count = 0
    for _ in range(times):
        with contextlib.suppress(RateLimitExceeded):
            await take(limiter, tps=1, limits=[TEN])
            count += 1
    return count


@STEPS
async def test_one_call_with_a_wrong_clock_starves_nobody(world: World, step_s: int) -> None:
    right, wrong = world.limiter(), off_by(world, step_s)
    assert await admitted(right, 20) == 10
    await admitted(wrong, 1)
    world.clock.advance(1)
    # The first that meets the wrong time sets it right, and credits nothing.
    assert await admitted(right, 20) <= 10
    for _ in range(5):
        world.clock.advance(1)
        assert await admitted(right, 20) == 10


@STEPS
async def test_clients_that_disagree_for_long_never_mint(world: World, step_s: int) -> None:
    """Each sets the time its own way: at most the limit, and a bucket's fill for the first time."""
    right, wrong = world.limiter(), off_by(world, step_s)
    total = 0
    for _ in range(50):
        world.clock.advance(0.1)
        total += await admitted(wrong, 12) + await admitted(right, 12)
    assert total <= 10 + 10 + 50


async def test_a_time_that_was_damaged_by_hand_is_set_back_and_reported(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = world.limiter()
    assert await admitted(limiter, 10) == 10
    address = BucketAddress(world.repository.namespace_id, "key-1", "gpt-4")
    await damage(world, address, 10 * YEAR_S)
    with caplog.at_level(logging.WARNING, "zae_limiter"):
        assert await admitted(limiter, 10) == 0
    (record,) = caplog.records
    assert "ahead" in record.getMessage()
    world.clock.advance(0.5)
    assert await admitted(limiter, 10) == 5
    found = (await world.scope.store.buckets.read([address]))[address]
    assert SET_BACK in found.dormant


async def damage(world: World, address: BucketAddress, ahead_s: int) -> None:
    store = world.scope.store
    before = (await store.buckets.read([address]))[address]
    after = before._replace(refilled_at_ms=before.refilled_at_ms + ahead_s * 1000)
    io = world.scope.io
    await store.buckets.write(address, Refill(io.operation_id(), io.now_ms(), before, after))
    world.scope.local.images.put(address, after)


async def test_the_refusal_of_a_bucket_that_was_set_back_tells_how_long_to_wait(
    world: World,
) -> None:
    right, wrong = world.limiter(), off_by(world, HOUR_S)
    await admitted(right, 10)
    await admitted(wrong, 11)
    with pytest.raises(RateLimitExceeded) as refused:
        await take(right, tps=1, limits=[TEN])
    assert refused.value.retry_after_seconds == pytest.approx(0.1)
    world.clock.advance(0.1)
    await take(right, tps=1, limits=[TEN])


@STEPS
async def test_a_client_whose_own_clock_steps_goes_on_within_a_second(
    world: World, step_s: int
) -> None:
    limiter = world.limiter()
    assert await admitted(limiter, 20) == 10
    world.clock.advance(step_s)
    await admitted(limiter, 20)
    world.clock.advance(1)
    await admitted(limiter, 20)
    for _ in range(3):
        world.clock.advance(1)
        assert await admitted(limiter, 20) == 10
