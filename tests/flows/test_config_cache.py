from __future__ import annotations

import pytest

from tests.drivers import SHARED, World, limiter_on, take
from zae_limiter import Limit, LimiterConfig, RateLimiter, Repository, ValidationError
from zae_limiter.core.hierarchy import ConfigSlot
from zae_limiter.flows.config_cache import ConfigCache, Resolution
from zae_limiter.flows.resolve import resolve
from zae_limiter.testing import ManualClock


def rpm(capacity: int) -> list[Limit]:
    return [Limit.per_minute("rpm", capacity)]


async def capacity(limiter: RateLimiter, entity_id: str = "key-1", resource: str = "gpt-4") -> int:
    return (await limiter.available(entity_id, resource))["rpm"]


async def test_a_record_is_remembered_for_its_lifetime(world: World) -> None:
    here = limiter_on(world.stranger(cache_ttl=30))
    await world.repository.set_system_defaults(rpm(1))
    assert await capacity(here) == 1
    await world.repository.set_system_defaults(rpm(2))
    world.clock.advance(29.999)
    assert await capacity(here) == 1
    world.clock.advance(0.001)
    assert await capacity(here) == 2


async def test_absence_is_remembered_too(world: World) -> None:
    here = limiter_on(world.stranger(cache_ttl=30), default_limits=rpm(1))
    assert await capacity(here) == 1
    await world.repository.set_limits("key-1", rpm(2), "gpt-4")
    world.clock.advance(29.999)
    assert await capacity(here) == 1
    world.clock.advance(0.001)
    assert await capacity(here) == 2


async def test_without_a_lifetime_nothing_is_remembered(world: World) -> None:
    here = limiter_on(world.stranger(cache_ttl=0))
    for number in range(1, 4):
        await world.repository.set_system_defaults(rpm(number))
        assert await capacity(here) == number


async def test_a_cascade_is_remembered_as_long_as_the_limits(world: World) -> None:
    here = limiter_on(world.stranger(cache_ttl=30))
    await world.repository.set_system_defaults(rpm(10))
    await take(here, rpm=1)
    await world.repository.create_entity("key-1", parent_id="org", cascade=True)
    world.clock.advance(29.999)
    await take(here, rpm=1)
    assert await world.repository.get_buckets("org") == []
    world.clock.advance(0.001)
    await take(here, rpm=1)
    assert len(await world.repository.get_buckets("org")) == 1


async def test_forgetting_everything_reads_everything_again(world: World) -> None:
    repository = world.stranger()
    here = limiter_on(repository)
    await world.repository.set_system_defaults(rpm(1))
    assert await capacity(here) == 1
    await world.repository.set_system_defaults(rpm(2))
    await here.invalidate_config_cache()
    assert await capacity(here) == 2
    await world.repository.set_system_defaults(rpm(3))
    await repository.invalidate_config_cache()
    assert await capacity(here) == 3


async def test_forgetting_an_entity_or_a_resource_keeps_the_others(world: World) -> None:
    here = limiter_on(world.stranger())
    pairs = [(entity, resource) for entity in ("a", "b") for resource in ("x", "y")]

    async def remembered() -> list[int]:
        return [await capacity(here, *pair) for pair in pairs]

    async def set_all(number: int) -> None:
        for entity_id, resource in pairs:
            await world.repository.set_limits(entity_id, rpm(number), resource)

    await set_all(1)
    assert await remembered() == [1, 1, 1, 1]
    await set_all(2)
    await here.invalidate_config_cache("a", "x")
    assert await remembered() == [2, 1, 1, 1]
    await set_all(3)
    await here.invalidate_config_cache("a")
    assert await remembered() == [3, 3, 1, 1]
    await set_all(4)
    await here.invalidate_config_cache(resource="x")
    assert await remembered() == [4, 3, 4, 1]


async def test_the_system_record_comes_along_with_every_other_read(world: World) -> None:
    """It has no lifetime of its own: a new entity's first read renews it for that entity."""
    here = limiter_on(world.stranger())
    await world.repository.set_system_defaults(rpm(1))
    assert await capacity(here, "a") == 1
    await world.repository.set_system_defaults(rpm(2))
    assert await capacity(here, "b") == 2


async def test_a_change_made_here_is_seen_at_once_by_all_limiters_on_the_repository(
    world: World,
) -> None:
    one, other = world.limiter(), world.limiter()
    for number in range(1, 4):
        await one.set_system_defaults(rpm(number))
        assert await capacity(other) == number
    await one.set_resource_defaults("gpt-4", rpm(7))
    assert await capacity(other) == 7
    await one.set_limits("key-1", rpm(8))
    assert await capacity(other) == 8
    await one.set_limits("key-1", rpm(9), "gpt-4")
    assert await capacity(other) == 9
    await one.delete_limits("key-1", "gpt-4")
    assert await capacity(other) == 8
    await one.delete_limits("key-1")
    assert await capacity(other) == 7
    await one.delete_resource_defaults("gpt-4")
    assert await capacity(other) == 3
    await one.delete_system_defaults()
    with pytest.raises(ValidationError):
        await capacity(other)


async def test_statistics_count_hits_misses_and_records(
    limiter: RateLimiter, repository: Repository, clock: ManualClock
) -> None:
    await repository.set_system_defaults(rpm(100))
    first = repository.get_cache_stats()
    assert (first.hits, first.misses, first.size, first.ttl_seconds) == (0, 0, 0, 60)
    await take(limiter, rpm=1)
    missed = repository.get_cache_stats()
    assert (missed.hits, missed.misses) == (0, 3)
    assert missed.size == 3
    await take(limiter, rpm=1)
    await take(limiter, rpm=1)
    hit = repository.get_cache_stats()
    assert (hit.hits, hit.misses, hit.size) == (2, 3, 3)
    assert hit.as_dict() == {"hits": 2, "misses": 3, "size": 3, "ttl": 60, "local_rejections": 0}
    clock.advance(60)
    await take(limiter, rpm=1)
    assert repository.get_cache_stats().misses == 6


async def test_a_warm_acquire_reads_no_configuration(world: World) -> None:
    limiter = world.limiter()
    await world.repository.set_system_defaults(rpm(100))
    await take(limiter, rpm=1)
    misses = world.repository.get_cache_stats().misses
    for _ in range(20):
        await take(limiter, rpm=1)
    assert world.repository.get_cache_stats().misses == misses


NOTHING = Resolution(None, None, None, None, False)


def test_the_cache_is_bounded_in_every_part() -> None:
    cache = ConfigCache(ttl_seconds=60, max_entries=10)
    for number in range(1_000):
        slot = ConfigSlot(resource=f"model-{number}")
        cache.keep(
            0, {slot: (60_000, LimiterConfig())}, (f"key-{number}", "gpt-4"), (60_000, NOTHING)
        )
    assert cache.stats().size == 20
    newest = [ConfigSlot(resource=f"model-{number}") for number in range(990, 1_000)]
    assert list(cache.fresh_slots(newest, 59_999)) == newest
    assert cache.fresh_slots(newest, 60_000) == {}
    assert cache.resolution("key-990", "gpt-4", 0) is NOTHING
    assert cache.resolution("key-989", "gpt-4", 0) is None


def test_the_resources_of_one_entity_are_bounded_too() -> None:
    cache = ConfigCache(ttl_seconds=60, max_entries=10)
    for number in range(1_000):
        cache.keep(0, {}, ("key-1", f"model-{number}"), (60_000, NOTHING))
        assert cache.stats().size <= 10


def test_an_entity_is_forgotten_with_all_its_resources() -> None:
    cache = ConfigCache(ttl_seconds=60)
    pairs = [(entity, resource) for entity in ("a", "b") for resource in ("x", "y")]
    for pair in pairs:
        cache.keep(0, {}, pair, (60_000, NOTHING))
    cache.invalidate("a")
    assert [pair for pair in pairs if cache.resolution(*pair, 0)] == [("b", "x"), ("b", "y")]
    cache.invalidate("b", "x")
    assert [pair for pair in pairs if cache.resolution(*pair, 0)] == [("b", "y")]
    cache.invalidate("b", "y")
    cache.invalidate("b")
    assert cache.stats().size == 0


async def test_a_clock_that_is_put_back_makes_nothing_last_longer(world: World) -> None:
    here = limiter_on(world.stranger(cache_ttl=30))
    await world.repository.set_system_defaults(rpm(1))
    assert await capacity(here) == 1
    await world.repository.set_system_defaults(rpm(2))
    world.clock.advance(-3600)
    assert await capacity(here) == 2
    await world.repository.set_resource_defaults("gpt-4", rpm(3))
    world.clock.advance(30)
    assert await capacity(here) == 3


async def test_entities_without_records_of_their_own_share_what_was_decided(world: World) -> None:
    await world.repository.set_system_defaults(rpm(1))
    first, second = [await resolve(world.scope, entity, "gpt-4") for entity in ("a", "b")]
    assert first is second


async def test_namespaces_of_one_store_remember_apart(world: World) -> None:
    await world.repository.register_namespace("other")
    other = await world.repository.namespace("other")
    await world.repository.set_system_defaults(rpm(1))
    await other.set_system_defaults(rpm(2))
    assert await capacity(world.limiter()) == 1
    assert await capacity(limiter_on(other)) == 2
    await other.invalidate_config_cache()
    assert world.repository.get_cache_stats().size > 0


@pytest.mark.parametrize("store_kind", SHARED, indirect=True)
async def test_a_read_that_a_change_overtakes_is_not_remembered(world: World) -> None:
    """Only asyncio interleaves them in one thread, but any thread may do so too."""
    repository = world.repository
    limiter = world.limiter()
    await repository.set_system_defaults(rpm(1))
    scope = world.scope
    read = scope.store.configs.read

    class Overtaken:
        """The store's configuration, with a change between a read and its answer."""

        def __getattr__(self, name: str) -> object:
            return getattr(configs, name)

        async def read(self, *arguments: object) -> object:
            page = await read(*arguments)  # type: ignore[arg-type]
            if not changed:
                changed.append(True)
                await repository.set_system_defaults(rpm(2))
            return page

    changed: list[bool] = []
    configs = scope.store.configs
    scope.store.configs = Overtaken()  # type: ignore[misc,assignment]
    await capacity(limiter)
    assert changed
    assert await capacity(limiter) == 2
