"""Leases that live as long as the work: reserved, committed, released, kept on failure."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.drivers import World, balance
from zae_limiter import LeaseExpiredError, Limit, RateLimiter, RateLimitExceeded, ValidationError

RPM = Limit.per_day("rpm", 10)
TPM = Limit.per_day("tpm", 1000)


class Hangup(Exception):
    """The caller's client has gone."""


@pytest.fixture
async def limiter(world: World) -> RateLimiter:
    await world.repository.set_system_defaults([RPM, TPM])
    await world.repository.create_entity("org")
    await world.repository.create_entity("key-1", parent_id="org", cascade=True)
    return world.limiter()


async def used(world: World) -> list[dict[str, int]]:
    """What key and organisation have used, in whole tokens."""
    return [
        {
            limit.name: limit.capacity - held.get(limit.name, limit.capacity * 1000) // 1000
            for limit in (RPM, TPM)
        }
        for held in [await balance(world.repository, entity) for entity in ("key-1", "org")]
    ]


async def test_a_reservation_is_committed_with_its_true_cost(
    world: World, limiter: RateLimiter
) -> None:
    lease = await limiter.reserve("key-1", "gpt-4", {"rpm": 1, "tpm": 500})
    assert await used(world) == [{"rpm": 1, "tpm": 500}] * 2
    await lease.commit(tpm=620)
    assert await used(world) == [{"rpm": 1, "tpm": 620}] * 2
    assert lease.consumed == {"rpm": 2, "tpm": 1240}


async def test_a_commit_without_amounts_leaves_the_estimate(
    world: World, limiter: RateLimiter
) -> None:
    lease = await limiter.reserve("key-1", "gpt-4", {"rpm": 1, "tpm": 500})
    await lease.commit()
    assert await used(world) == [{"rpm": 1, "tpm": 500}] * 2


async def test_a_commit_of_less_gives_back_the_rest_and_of_zero_all(
    world: World, limiter: RateLimiter
) -> None:
    for actual in (20, 0):
        lease = await limiter.reserve("key-1", "gpt-4", {"tpm": 500})
        await lease.consume(tpm=100)
        await lease.adjust(tpm=50)
        await lease.commit(tpm=actual)
    assert await used(world) == [{"rpm": 0, "tpm": 20}] * 2


async def test_a_commit_may_take_the_balance_below_zero(world: World, limiter: RateLimiter) -> None:
    lease = await limiter.reserve("key-1", "gpt-4", {"tpm": 500})
    await lease.commit(tpm=1_500)
    assert await used(world) == [{"rpm": 0, "tpm": 1_500}] * 2
    with pytest.raises(RateLimitExceeded):
        async with limiter.acquire("key-1", "gpt-4", {"tpm": 1}):
            pass


async def test_a_release_without_amounts_gives_everything_back(
    world: World, limiter: RateLimiter
) -> None:
    lease = await limiter.reserve("key-1", "gpt-4", {"rpm": 1, "tpm": 500})
    await lease.consume(tpm=100)
    await lease.adjust(tpm=50)
    await lease.release()
    assert await used(world) == [{"rpm": 0, "tpm": 0}] * 2


@pytest.mark.parametrize("first", ["commit", "release"])
@pytest.mark.parametrize("second", ["commit", "release", "consume", "adjust"])
async def test_a_lease_ends_once(
    world: World, limiter: RateLimiter, first: str, second: str
) -> None:
    lease = await limiter.reserve("key-1", "gpt-4", {"rpm": 1, "tpm": 500})
    await getattr(lease, first)()
    before = await used(world)
    amounts = {"tpm": 1} if second in ("consume", "adjust") else {}
    with pytest.raises(LeaseExpiredError):
        await getattr(lease, second)(**amounts)
    assert await used(world) == before


@pytest.mark.parametrize("actual", [{"tpm": -1}, {"tpm": 1.5}, {"nope": 1}, {"tpm": 10**30}])
async def test_a_bad_commit_changes_nothing_and_the_lease_goes_on(
    world: World, limiter: RateLimiter, actual: Any
) -> None:
    lease = await limiter.reserve("key-1", "gpt-4", {"rpm": 1, "tpm": 500})
    with pytest.raises(ValidationError):
        await lease.commit(**actual)
    await lease.commit(tpm=7)
    assert await used(world) == [{"rpm": 1, "tpm": 7}] * 2


async def test_a_committed_charge_stands_though_the_block_fails(
    world: World, limiter: RateLimiter
) -> None:
    async def stream() -> None:
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
            await lease.commit(tpm=80)
            raise Hangup

    with pytest.raises(Hangup):
        await stream()
    assert await used(world) == [{"rpm": 1, "tpm": 80}] * 2


async def test_a_lease_released_in_its_block_is_not_refunded_again(
    world: World, limiter: RateLimiter
) -> None:
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
        await lease.release()
    assert await used(world) == [{"rpm": 0, "tpm": 0}] * 2


async def test_a_block_that_fails_keeps_its_charge_and_corrections_if_it_is_told_to(
    world: World, limiter: RateLimiter
) -> None:
    wanted = {"rpm": 1, "tpm": 500}

    async def stream() -> None:
        async with limiter.acquire("key-1", "gpt-4", wanted, on_error="keep") as lease:
            await lease.adjust(tpm=-400)
            raise Hangup

    with pytest.raises(Hangup):
        await stream()
    assert await used(world) == [{"rpm": 1, "tpm": 100}] * 2


async def test_a_reservation_is_a_context_manager(world: World, limiter: RateLimiter) -> None:
    async with await limiter.reserve("key-1", "gpt-4", {"tpm": 500}) as lease:
        await lease.adjust(tpm=-100)
    assert await used(world) == [{"rpm": 0, "tpm": 400}] * 2
    with pytest.raises(Hangup):
        async with await limiter.reserve("key-1", "gpt-4", {"tpm": 500}):
            raise Hangup
    assert await used(world) == [{"rpm": 0, "tpm": 400}] * 2


async def test_a_refused_reservation_charges_nothing(world: World, limiter: RateLimiter) -> None:
    with pytest.raises(RateLimitExceeded):
        await limiter.reserve("key-1", "gpt-4", {"rpm": 1, "tpm": 1_001})
    assert await used(world) == [{"rpm": 0, "tpm": 0}] * 2


async def test_remaining_is_the_least_of_all_levels(world: World, limiter: RateLimiter) -> None:
    async with limiter.acquire("org", "gpt-4", {"tpm": 300}):
        pass
    lease = await limiter.reserve("key-1", "gpt-4", {"rpm": 1, "tpm": 500})
    assert lease.remaining == {"rpm": 9, "tpm": 200}
    await lease.commit(tpm=600)
    assert lease.remaining == {"rpm": 9, "tpm": 100}


async def test_a_bad_word_for_errors_is_refused(limiter: RateLimiter) -> None:
    word: Any = "forget"
    with pytest.raises(ValidationError, match="must be refund or keep"):
        limiter.acquire("key-1", "gpt-4", {"rpm": 1}, on_error=word)


async def test_a_reservation_that_is_dropped_warns_and_stays_charged(
    world: World, limiter: RateLimiter
) -> None:
    with pytest.warns(ResourceWarning, match="was never ended: call commit"):
        await limiter.reserve("key-1", "gpt-4", {"tpm": 500})
    assert await used(world) == [{"rpm": 0, "tpm": 500}] * 2


async def test_two_ends_at_once_are_one_end(world: World, limiter: RateLimiter) -> None:
    lease = await limiter.reserve("key-1", "gpt-4", {"rpm": 1, "tpm": 500})
    ends = (lease.commit(tpm=600), lease.release(), lease.commit(tpm=700))
    outcomes = await asyncio.gather(*ends, return_exceptions=True)
    assert sum(outcome is None for outcome in outcomes) == 1
    (tpm,) = {each["tpm"] for each in await used(world)}
    assert tpm in (0, 600, 700)
