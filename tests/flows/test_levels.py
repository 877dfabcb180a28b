"""The strongest level decides which limits are in force, and a change reaches buckets in time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.support.drivers import SHARED, World, balance, limiter_on, take
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository, ValidationError
from zae_limiter.core.validation import DEFAULT_RESOURCE


def rpm(capacity: int) -> list[Limit]:
    return [Limit.per_minute("rpm", capacity)]


Set = Callable[[Repository], Awaitable[None]]
# From the weakest to the strongest; each has a capacity of its own.
LEVELS: list[tuple[str, Set, Set]] = [
    (
        "system",
        lambda r: r.set_system_defaults(rpm(20)),
        lambda r: r.delete_system_defaults(),
    ),
    (
        "resource",
        lambda r: r.set_resource_defaults("gpt-4", rpm(30)),
        lambda r: r.delete_resource_defaults("gpt-4"),
    ),
    (
        "entity_default",
        lambda r: r.set_limits("key-1", rpm(40)),
        lambda r: r.delete_limits("key-1"),
    ),
    (
        "entity",
        lambda r: r.set_limits("key-1", rpm(50), "gpt-4"),
        lambda r: r.delete_limits("key-1", "gpt-4"),
    ),
]
CAPACITIES = {"system": 20, "resource": 30, "entity_default": 40, "entity": 50}


async def test_the_strongest_level_that_has_limits_decides(world: World) -> None:
    repository = world.repository
    limiter = world.limiter(default_limits=rpm(10))
    assert await limiter.available("key-1", "gpt-4") == {"rpm": 10}
    assert await repository.resolve_limits("key-1", "gpt-4") == (None, None, None)
    for source, set_limits, _ in LEVELS:
        await set_limits(repository)
        assert await limiter.available("key-1", "gpt-4") == {"rpm": CAPACITIES[source]}
        limits = rpm(CAPACITIES[source])
        assert await repository.resolve_limits("key-1", "gpt-4") == (limits, None, source)
    for (_, _, delete), (below, _, _) in zip(LEVELS[:0:-1], LEVELS[-2::-1], strict=True):
        await delete(repository)
        assert await limiter.available("key-1", "gpt-4") == {"rpm": CAPACITIES[below]}


async def test_levels_are_never_merged(limiter: RateLimiter, repository: Repository) -> None:
    await repository.set_system_defaults([*rpm(20), Limit.per_minute("tpm", 1_000)])
    await repository.set_resource_defaults("gpt-4", rpm(5))
    assert await limiter.available("key-1", "gpt-4") == {"rpm": 5}
    assert await limiter.available("key-1", "gpt-3") == {"rpm": 20, "tpm": 1_000}


async def test_an_entity_s_limits_for_one_resource_beat_its_limits_for_all(
    limiter: RateLimiter, repository: Repository
) -> None:
    await repository.set_limits("key-1", rpm(40), DEFAULT_RESOURCE)
    await repository.set_limits("key-1", rpm(50), "gpt-4")
    await repository.set_resource_defaults("gpt-3", rpm(30))
    assert await limiter.available("key-1", "gpt-4") == {"rpm": 50}
    assert await limiter.available("key-1", "gpt-3") == {"rpm": 40}
    assert await limiter.available("key-2", "gpt-3") == {"rpm": 30}


async def test_the_call_s_own_limits_are_the_strongest(
    limiter: RateLimiter, repository: Repository
) -> None:
    await repository.set_limits("key-1", rpm(50), "gpt-4")
    assert await limiter.available("key-1", "gpt-4", limits=rpm(7)) == {"rpm": 7}
    needed = {"rpm": 8}
    wait_s = await limiter.time_until_available("key-1", "gpt-4", needed, limits=rpm(7))
    assert wait_s == float("inf")


async def test_the_call_s_own_limits_reach_a_bucket_that_exists(
    limiter: RateLimiter, repository: Repository
) -> None:
    await repository.set_system_defaults(rpm(50))
    await take(limiter, rpm=10)
    await take(limiter, limits=rpm(5), rpm=2)
    assert await balance(repository) == {"rpm": 3_000}
    with pytest.raises(RateLimitExceeded) as refused:
        await take(limiter, limits=rpm(5), rpm=4)
    assert refused.value.primary_violation.limit.capacity == 5
    await take(limiter, limits=[*rpm(5), Limit.per_hour("tpm", 9)], rpm=1, tpm=9)
    assert await balance(repository) == {"rpm": 2_000, "tpm": 0}
    await take(limiter, rpm=2)
    assert await balance(repository) == {"rpm": 0}


async def test_the_constructor_s_limits_are_the_weakest(world: World) -> None:
    limiter = world.limiter(default_limits=rpm(3))
    await take(limiter, rpm=3)
    with pytest.raises(RateLimitExceeded):
        await take(limiter, rpm=1)
    await world.repository.set_system_defaults(rpm(5))
    await take(limiter, rpm=0)
    assert await limiter.available("key-1", "gpt-4") == {"rpm": 0}
    await take(limiter, "key-2", rpm=5)


@pytest.mark.parametrize("level", LEVELS, ids=[name for name, _, _ in LEVELS])
async def test_a_change_made_here_is_in_force_at_once(
    world: World, level: tuple[str, Set, Set]
) -> None:
    source, set_limits, delete = level
    limiter = world.limiter(default_limits=rpm(100))
    await take(limiter, rpm=1)
    await set_limits(world.repository)
    await take(limiter, rpm=CAPACITIES[source])
    with pytest.raises(RateLimitExceeded):
        await take(limiter, rpm=1)
    await delete(world.repository)
    await take(limiter, rpm=0)
    world.clock.advance(60)
    await take(limiter, rpm=100)


@pytest.mark.parametrize("store_kind", SHARED, indirect=True)
@pytest.mark.parametrize("level", LEVELS, ids=[name for name, _, _ in LEVELS])
async def test_a_change_made_elsewhere_reaches_a_busy_bucket_within_the_ttl(
    world: World, level: tuple[str, Set, Set]
) -> None:
    """The bucket is used all the time, so that only the change can have renewed it."""
    source, set_limits, _ = level
    await world.repository.set_system_defaults(rpm(60))
    limiter = world.limiter()
    other = await world.open()
    await take(limiter, rpm=10)
    await set_limits(other)
    for _ in range(59):
        world.clock.advance(1)
        await take(limiter, rpm=1)
    assert (await world.repository.get_buckets("key-1"))[0].capacity == 60
    world.clock.advance(1)
    await take(limiter, rpm=0)
    (state,) = await world.repository.get_buckets("key-1")
    assert state.capacity == CAPACITIES[source]
    assert state.tokens_milli <= CAPACITIES[source] * 1000


@pytest.mark.parametrize("store_kind", SHARED, indirect=True)
async def test_limits_that_were_removed_elsewhere_are_gone_within_the_ttl(
    world: World,
) -> None:
    other = await world.open()
    await world.repository.set_system_defaults(rpm(60))
    await world.repository.set_limits("key-1", rpm(5), "gpt-4")
    limiter = world.limiter()
    await take(limiter, rpm=5)
    await other.delete_limits("key-1", "gpt-4")
    world.clock.advance(59.999)
    await take(limiter, rpm=1)
    assert (await world.repository.get_buckets("key-1"))[0].capacity == 5
    world.clock.advance(0.001)
    await take(limiter, rpm=1)
    assert (await world.repository.get_buckets("key-1"))[0].capacity == 60


@pytest.mark.parametrize("store_kind", SHARED, indirect=True)
async def test_limits_that_were_raised_elsewhere_are_in_force_within_the_ttl(
    world: World,
) -> None:
    other = await world.open()
    await world.repository.set_system_defaults(rpm(60))
    limiter = world.limiter()
    await take(limiter, rpm=60)
    await other.set_system_defaults(rpm(600))
    world.clock.advance(59.999)
    with pytest.raises(RateLimitExceeded):
        await take(limiter, rpm=60)
    world.clock.advance(0.001)
    await take(limiter, rpm=60)
    world.clock.advance(60)
    await take(limiter, rpm=600)


async def test_lowered_limits_clamp_the_balance_and_raised_ones_fill_with_time(
    world: World,
) -> None:
    repository, limiter = world.repository, world.limiter()
    await repository.set_system_defaults(rpm(60))
    await take(limiter, rpm=10)
    await repository.set_system_defaults(rpm(30))
    await take(limiter, rpm=5)
    assert await balance(repository) == {"rpm": 25_000}
    await repository.set_system_defaults(rpm(120))
    with pytest.raises(RateLimitExceeded) as refused:
        await take(limiter, rpm=27)
    assert refused.value.retry_after_seconds == 1
    world.clock.advance(1)
    await take(limiter, rpm=27)


async def test_a_limit_that_is_added_starts_full_and_one_that_is_removed_is_gone(
    world: World,
) -> None:
    repository, limiter = world.repository, world.limiter()
    await repository.set_system_defaults(rpm(60))
    await take(limiter, rpm=10)
    await repository.set_system_defaults([*rpm(60), Limit.per_hour("tpm", 500)])
    await take(limiter, rpm=1, tpm=100)
    assert await balance(repository) == {"rpm": 49_000, "tpm": 400_000}
    await repository.set_system_defaults([Limit.per_hour("tpm", 500)])
    await take(limiter, tpm=1)
    assert await balance(repository) == {"tpm": 399_000}


async def test_a_refusal_puts_changed_limits_in_force(world: World) -> None:
    repository, limiter = world.repository, world.limiter()
    await repository.set_system_defaults(rpm(60))
    await take(limiter, rpm=10)
    await repository.set_system_defaults(rpm(5))
    with pytest.raises(RateLimitExceeded):
        await take(limiter, rpm=6)
    assert await balance(repository) == {"rpm": 5_000}


async def test_a_client_with_a_stale_cache_adopts_the_new_limits_of_a_bucket(
    world: World,
) -> None:
    old, new = limiter_on(world.stranger()), world.limiter()
    await world.repository.set_system_defaults(rpm(60))
    await take(old, rpm=10)
    await world.repository.set_system_defaults(rpm(30))
    await take(new, rpm=1)
    await take(old, rpm=1)
    assert await balance(world.repository) == {"rpm": 28_000}
    assert (await world.repository.get_buckets("key-1"))[0].capacity == 30
    with pytest.raises(RateLimitExceeded) as refused:
        await take(old, rpm=31)
    assert not refused.value.retryable


async def test_a_limit_that_was_removed_elsewhere_is_refused_once_the_client_reads_the_bucket(
    world: World,
) -> None:
    old, new = limiter_on(world.stranger()), world.limiter()
    both = [*rpm(60), Limit.per_hour("tpm", 500)]
    await world.repository.set_system_defaults(both)
    await take(old, rpm=1, tpm=1)
    await world.repository.set_system_defaults(rpm(60))
    await take(new, rpm=1)
    with pytest.raises(ValidationError, match="tpm"):
        await take(old, rpm=1, tpm=1)
    assert await balance(world.repository) == {"rpm": 58_000}


async def test_buckets_of_entities_without_limits_of_their_own_expire(world: World) -> None:
    repository, limiter = world.repository, world.limiter()
    await repository.set_system_defaults(rpm(60))
    await repository.set_limits("key-2", rpm(60))
    await take(limiter, "key-1", rpm=60)
    await take(limiter, "key-2", rpm=60)
    found = await world.scope.store.buckets.of_resource(repository.namespace_id, "gpt-4")
    expiries = {address.entity_id: bucket.expires_at_s for address, bucket in found.items()}
    assert expiries == {"key-1": world.clock.now_ms() // 1000 + 7 * 60, "key-2": None}
