"""Statistics tell how acquires ended, for each namespace apart, and what they needed."""

from __future__ import annotations

import json

import pytest

from tests.support.drivers import World, limiter_on, take
from zae_limiter import Limit, RateLimiter, RateLimitExceeded

RPM = Limit.per_day("rpm", 10)
TPM = Limit.per_day("tpm", 1000)


@pytest.fixture
async def limiter(world: World) -> RateLimiter:
    await world.repository.set_system_defaults([RPM, TPM])
    await world.repository.create_entity("org")
    await world.repository.create_entity("key-1", parent_id="org", cascade=True)
    return world.limiter()


async def refuse(limiter: RateLimiter, entity_id: str, rpm: int, tpm: int = 0) -> None:
    with pytest.raises(RateLimitExceeded):
        await take(limiter, entity_id, rpm=rpm, tpm=tpm)


async def test_admitted_and_refused_acquires_are_counted(
    world: World, limiter: RateLimiter
) -> None:
    for _ in range(3):
        await take(limiter, "key-1", rpm=3)
    for _ in range(2):
        await refuse(limiter, "key-1", rpm=3)
    await take(limiter, "org", rpm=1)
    stats = world.repository.get_stats()
    assert (stats.admitted, stats.refused) == (4, 2)
    assert stats.refused_by_limit == {("rpm", "own"): 2, ("rpm", "ancestor"): 2}
    assert json.loads(json.dumps(stats.as_dict()))["admitted"] == 4


async def test_only_the_level_that_refused_is_counted(world: World, limiter: RateLimiter) -> None:
    await take(limiter, "org", tpm=1000)
    await refuse(limiter, "key-1", rpm=1, tpm=1)
    assert world.repository.get_stats().refused_by_limit == {("tpm", "ancestor"): 1}


async def test_each_namespace_has_counts_of_its_own(world: World, limiter: RateLimiter) -> None:
    await world.repository.register_namespace("other")
    other = await world.repository.namespace("other")
    await other.set_system_defaults([RPM])
    await take(limiter_on(other), "key-1", rpm=1)
    assert (world.repository.get_stats().admitted, other.get_stats().admitted) == (0, 1)


async def test_an_acquire_that_waited_is_counted_once(world: World) -> None:
    await world.repository.set_system_defaults([Limit.per_second("rps", 1)])
    limiter = world.limiter()
    for _ in range(3):
        async with limiter.acquire("key-1", "gpt-4", {"rps": 1}, timeout=5):
            pass
    stats = world.repository.get_stats()
    assert (stats.admitted, stats.waited, stats.refused) == (3, 2, 0)


async def test_a_request_that_cannot_fit_in_time_counts_as_refused(world: World) -> None:
    await world.repository.set_system_defaults([RPM])
    limiter = world.limiter()
    await take(limiter, "key-1", rpm=10)
    with pytest.raises(RateLimitExceeded):
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, timeout=0.1):
            pass
    assert world.repository.get_stats().refused == 1


# The call of a warm acquire. A store in memory is not called.
CALL = {"memory": None, "sqlite": "write", "dynamodb": "UpdateItem"}


async def test_calls_to_a_store_are_counted(world: World, limiter: RateLimiter) -> None:
    await take(limiter, "org", rpm=1)
    before = dict(world.repository.get_stats().traffic.calls)
    await take(limiter, "org", rpm=1)
    after = world.repository.get_stats().traffic.calls
    call = CALL[world.store]
    expected = before if call is None else {**before, call: before[call] + 1}
    assert after == expected
