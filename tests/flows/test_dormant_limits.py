"""Limits that are not in force for a while are not forgotten while they matter."""

from __future__ import annotations

import contextlib

import pytest

from tests.support.drivers import World, take
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository

DAY = Limit.per_day("day", 100)
OTHER = Limit.per_second("other", 10)
HALF_A_DAY_S = 12 * 3600


async def test_calls_that_name_limits_in_turn_do_not_refill_them(limiter: RateLimiter) -> None:
    await take(limiter, limits=[DAY], day=100)
    for _ in range(3):
        await take(limiter, limits=[OTHER], other=1)
        with pytest.raises(RateLimitExceeded):
            await take(limiter, limits=[DAY], day=1)


async def test_a_limit_that_is_removed_and_set_again_is_not_full(
    limiter: RateLimiter, repository: Repository
) -> None:
    await repository.set_system_defaults([DAY, OTHER])
    await take(limiter, day=100, other=1)
    await repository.set_system_defaults([OTHER])
    await take(limiter, other=1)
    await repository.set_system_defaults([DAY, OTHER])
    assert (await limiter.available("key-1", "gpt-4"))["day"] == 0
    with pytest.raises(RateLimitExceeded):
        await take(limiter, day=1)


async def test_a_limit_out_of_force_refills_as_it_would_in_force(
    limiter: RateLimiter, world: World
) -> None:
    await take(limiter, limits=[DAY], day=100)
    await take(limiter, limits=[OTHER], other=1)
    world.clock.advance(HALF_A_DAY_S)
    await take(limiter, limits=[OTHER], other=1)
    assert await limiter.available("key-1", "gpt-4", [DAY]) == {"day": 50}
    await take(limiter, limits=[DAY], day=50)
    with pytest.raises(RateLimitExceeded):
        await take(limiter, limits=[DAY], day=1)


async def test_a_limit_out_of_force_is_not_shown(
    limiter: RateLimiter, repository: Repository
) -> None:
    await take(limiter, limits=[DAY], day=1)
    await take(limiter, limits=[OTHER], other=1)
    assert {s.limit_name for s in await repository.get_buckets("key-1")} == {"other"}
    assert await repository.get_resource_buckets("gpt-4", "day") == []
    assert (await limiter.get_resource_capacity("gpt-4", "day")).entities == []


async def test_a_limit_out_of_force_is_forgotten_once_it_is_full(
    limiter: RateLimiter, world: World
) -> None:
    await take(limiter, limits=[DAY], day=1)
    await take(limiter, limits=[OTHER], other=1)
    world.clock.advance(HALF_A_DAY_S)
    await take(limiter, limits=[OTHER], other=1)
    assert await limiter.available("key-1", "gpt-4", [Limit.per_day("day", 7)]) == {"day": 7}


async def test_a_refund_reaches_a_limit_that_is_out_of_force(
    limiter: RateLimiter,
) -> None:
    async def fail() -> None:
        async with limiter.acquire("key-1", "gpt-4", {"day": 60}, limits=[DAY]):
            await take(limiter, limits=[DAY], day=40)
            await take(limiter, limits=[OTHER], other=1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await limiter.available("key-1", "gpt-4", [DAY]) == {"day": 60}


async def test_a_correction_reaches_a_limit_that_is_out_of_force(
    limiter: RateLimiter,
) -> None:
    async with limiter.acquire("key-1", "gpt-4", {"day": 60}, limits=[DAY]) as lease:
        await take(limiter, limits=[OTHER], other=1)
        await lease.adjust(day=50)
    assert await limiter.available("key-1", "gpt-4", [DAY]) == {"day": -10}


async def test_a_bucket_does_not_expire_while_it_has_dormant_limits(
    limiter: RateLimiter, world: World
) -> None:
    await take(limiter, limits=[DAY], day=100)
    await take(limiter, limits=[OTHER], other=1)
    found = await world.scope.store.buckets.of_resource(world.repository.namespace_id, "gpt-4")
    expiries = [bucket.expires_at_s for bucket in found.values()]
    assert expiries == [world.clock.now_ms() // 1000 + 2 * HALF_A_DAY_S]


async def take_each(limiter: RateLimiter, limits: list[Limit], amount: int) -> None:
    """Take as much of each limit."""
    amounts = {limit.name: amount for limit in limits}
    async with limiter.acquire("key-1", "gpt-4", amounts, limits):
        pass


async def use_up_among_inventions(limiter: RateLimiter, invented: int) -> int:
    """How much of a daily limit is admitted while so many other limits come and go each time."""
    admitted = 0
    for number in range(3):
        with contextlib.suppress(RateLimitExceeded):
            await take(limiter, limits=[DAY], day=100)
            admitted += 100
        for name in range(invented):
            other = Limit(f"slower-{name}", 1000, 1000, 4 * HALF_A_DAY_S)
            with contextlib.suppress(RateLimitExceeded):
                await take_each(limiter, [other], 999 if number == 0 else 0)
    return admitted


@pytest.mark.parametrize("invented", [16, 17, 40])
async def test_no_number_of_other_limits_makes_a_limit_full_again(
    limiter: RateLimiter, invented: int
) -> None:
    assert await use_up_among_inventions(limiter, invented) == 100


async def test_a_debt_stays_whatever_number_of_other_limits_come(limiter: RateLimiter) -> None:
    slow = [Limit(f"slow-{n}", 100, 1, 86_400) for n in range(17)]
    for limit in (DAY, *slow):
        async with limiter.acquire("key-1", "gpt-4", {limit.name: 1}, limits=[limit]) as lease:
            await lease.adjust(**{limit.name: 199})
    for limit in (DAY, *slow):
        assert (await limiter.available("key-1", "gpt-4", [limit]))[limit.name] <= -100


async def test_limits_that_were_forgotten_start_full_once_all_of_them_would_be(
    limiter: RateLimiter, world: World
) -> None:
    await use_up_among_inventions(limiter, 40)
    world.clock.advance(4 * HALF_A_DAY_S)
    await take(limiter, limits=[OTHER], other=1)
    await take(limiter, limits=[DAY], day=100)


async def test_sets_of_32_limits_may_alternate(limiter: RateLimiter) -> None:
    """Each change of all limits is one write, and an expression has a bounded length."""
    sets = [[Limit.per_day(f"{s}-{n:02}", 10) for n in range(32)] for s in ("red", "green", "blue")]
    admitted = 0
    for _ in range(12):
        for limits in sets:
            with contextlib.suppress(RateLimitExceeded):
                await take_each(limiter, limits, 1)
                admitted += 1
    assert admitted <= 30
