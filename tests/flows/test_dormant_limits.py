"""Limits that are not in force for a while are not forgotten while they matter."""

from __future__ import annotations

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
