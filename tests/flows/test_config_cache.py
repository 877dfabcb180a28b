from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import get_args

import pytest

from tests.support.drivers import SHARED, World, limiter_on, take
from zae_limiter import Limit, LimiterConfig, RateLimiter, Repository, ValidationError
from zae_limiter.core.hierarchy import SYSTEM_SLOT, ConfigSlot, Slots, shared_slots
from zae_limiter.core.models import ConfigSource
from zae_limiter.core.validation import DEFAULT_RESOURCE
from zae_limiter.flows.config.cache import ConfigCache, RecordOwners
from zae_limiter.flows.config.entity_cache import ResolvedEntry
from zae_limiter.flows.config.resolution import Resolution, SharedRecord, shared_settings
from zae_limiter.flows.config.resolve import resolve
from zae_limiter.testing import ManualClock


def rpm(capacity: int) -> list[Limit]:
    return [Limit.per_minute("rpm", capacity)]


async def capacity(limiter: RateLimiter, entity_id: str = "key-1", resource: str = "gpt-4") -> int:
    return (await limiter.available(entity_id, resource))["rpm"]


async def test_a_record_is_cached_for_one_ttl(world: World) -> None:
    here = limiter_on(world.stranger(cache_ttl=30))
    await world.repository.set_system_defaults(rpm(1))
    assert await capacity(here) == 1
    await world.repository.set_system_defaults(rpm(2))
    world.clock.advance(29.999)
    assert await capacity(here) == 1
    world.clock.advance(0.001)
    assert await capacity(here) == 2


async def test_the_absence_of_a_record_is_cached_for_one_ttl(world: World) -> None:
    here = limiter_on(world.stranger(cache_ttl=30), default_limits=rpm(1))
    assert await capacity(here) == 1
    await world.repository.set_limits("key-1", rpm(2), "gpt-4")
    world.clock.advance(29.999)
    assert await capacity(here) == 1
    world.clock.advance(0.001)
    assert await capacity(here) == 2


async def test_a_cache_with_a_ttl_of_zero_keeps_nothing(world: World) -> None:
    here = limiter_on(world.stranger(cache_ttl=0))
    for number in range(1, 4):
        await world.repository.set_system_defaults(rpm(number))
        assert await capacity(here) == number


async def test_a_cascade_is_cached_for_one_ttl(world: World) -> None:
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


async def test_invalidating_everything_reads_everything_again(world: World) -> None:
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


async def test_invalidating_an_entity_or_a_resource_keeps_all_other_entries(world: World) -> None:
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


async def test_a_shared_record_is_cached_for_one_ttl_whichever_entity_asks(world: World) -> None:
    here = limiter_on(world.stranger(cache_ttl=30))
    await world.repository.set_system_defaults(rpm(1))
    assert await capacity(here, "a") == 1
    await world.repository.set_system_defaults(rpm(2))
    world.clock.advance(29.999)
    assert [await capacity(here, entity) for entity in ("a", "b")] == [1, 1]
    world.clock.advance(0.001)
    assert [await capacity(here, entity) for entity in ("a", "b", "c")] == [2, 2, 2]


@pytest.mark.parametrize("level", get_args(ConfigSource))
async def test_a_change_at_any_level_arrives_within_the_ttl_whenever_other_records_were_read(
    world: World, level: ConfigSource
) -> None:
    """`first` is known since the beginning, `late` since a while after."""
    other, here = world.repository, limiter_on(world.stranger(cache_ttl=30))

    async def set_level(capacity: int) -> None:
        match level:
            case "entity" | "entity_default":
                for entity_id in ("first", "late"):
                    resource = "gpt-4" if level == "entity" else DEFAULT_RESOURCE
                    await other.set_limits(entity_id, rpm(capacity), resource)
            case "resource":
                await other.set_resource_defaults("gpt-4", rpm(capacity))
            case "system":
                await other.set_system_defaults(rpm(capacity))

    await set_level(1)
    assert await capacity(here, "first") == 1
    world.clock.advance(20)
    assert await capacity(here, "late") == 1
    await set_level(2)
    world.clock.advance(9.999)
    assert await capacity(here, "first") == 1
    world.clock.advance(0.001)
    assert await capacity(here, "first") == 2
    world.clock.advance(20)
    assert await capacity(here, "late") == 2


async def test_an_entry_outlives_stale_shared_records_which_are_read_again_once(
    world: World,
) -> None:
    await world.repository.set_system_defaults(rpm(1))
    await world.repository.create_entity("late", parent_id="org", cascade=True)
    await world.repository.set_limits("own", rpm(3))
    scope = world.stranger(cache_ttl=30).scope
    await resolve(scope, "first", "gpt-4")
    world.clock.advance(20)
    before = {entity: await resolve(scope, entity, "gpt-4") for entity in ("late", "own", "bare")}
    world.clock.advance(15)
    misses = scope.local.config_cache.stats().misses
    for entity, known in before.items():
        assert await resolve(scope, entity, "gpt-4") is known
    assert scope.local.config_cache.stats().misses - misses == 2, (
        "the records of the resource and the system"
    )


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
    await repository.create_entity("key-1")
    first = repository.get_cache_stats()
    assert (first.hits, first.misses, first.size, first.ttl_seconds) == (0, 0, 0, 60)
    await take(limiter, rpm=1)
    missed = repository.get_cache_stats()
    assert (missed.hits, missed.misses) == (0, 4)
    assert missed.size == 3
    await take(limiter, rpm=1)
    await take(limiter, rpm=1)
    hit = repository.get_cache_stats()
    assert (hit.hits, hit.misses, hit.size) == (2, 4, 3)
    assert hit.as_dict() == {"hits": 2, "misses": 4, "size": 3, "ttl": 60, "local_rejections": 0}
    clock.advance(60)
    await take(limiter, rpm=1)
    assert repository.get_cache_stats().misses == 8


@pytest.mark.parametrize("at_most", [10, 1])
async def test_owners_of_records_get_their_own_limits_and_other_entities_the_shared_ones(
    world: World, monkeypatch: pytest.MonkeyPatch, at_most: int
) -> None:
    """Whether the store lists the owners or there are too many of them."""
    monkeypatch.setattr("zae_limiter.flows.config.resolve._MAX_OWNERS", at_most)
    await world.repository.set_system_defaults(rpm(100))
    await world.repository.set_limits("key-1", rpm(7), "gpt-4")
    await world.repository.create_entity("key-2", parent_id="key-1", cascade=True)
    here = limiter_on(world.stranger())
    for entity_id, limit in [("key-0", 100), ("key-1", 7), ("key-2", 7), ("key-3", 100)]:
        assert await capacity(here, entity_id) == limit


@pytest.mark.parametrize("store_kind", ["sqlite"])
async def test_sqlite_is_not_read_for_an_entity_without_records(
    limiter: RateLimiter, repository: Repository, clock: ManualClock
) -> None:
    await repository.set_system_defaults(rpm(100))
    await take(limiter, rpm=1)
    first = repository.get_cache_stats()
    for number in range(50):
        async with limiter.acquire(f"entity-{number}", "gpt-4", {"rpm": 1}):
            pass
    then = repository.get_cache_stats()
    assert (then.misses, then.size) == (first.misses, first.size)
    assert then.hits == first.hits + 50


async def test_a_warm_acquire_reads_no_configuration(world: World) -> None:
    limiter = world.limiter()
    await world.repository.set_system_defaults(rpm(100))
    await take(limiter, rpm=1)
    misses = world.repository.get_cache_stats().misses
    for _ in range(20):
        await take(limiter, rpm=1)
    assert world.repository.get_cache_stats().misses == misses


PLAIN = Resolution(None, None, None, None, False)


def test_shared_records_are_bounded() -> None:
    cache = ConfigCache(ttl_seconds=60, max_entries=10)
    places = tuple(ConfigSlot(resource=f"model-{number}") for number in range(1_000))
    for slot in places:
        cache.keep_records(0, {slot: SharedRecord(0, LimiterConfig())})
    assert cache.stats().size == 10
    assert list(cache.records(places, 59_999)) == [*places[-10:]]
    assert cache.records(places, 60_000) == {}


def test_a_read_from_before_an_invalidation_is_not_kept() -> None:
    cache = ConfigCache()
    epoch = cache.epoch
    cache.invalidate("some-entity")
    cache.keep_entry(epoch, "key-1", ResolvedEntry("gpt-4", 0, 60_000, PLAIN), 0)
    cache.keep_records(epoch, {SYSTEM_SLOT: SharedRecord(0, None)})
    cache.keep_owners(epoch, RecordOwners(0, frozenset()))
    assert cache.stats().size == 0
    assert cache.entry("key-1", "gpt-4") is None
    assert cache.records((SYSTEM_SLOT,), 0) == {}
    assert cache.owners(0) is None


async def test_a_clock_that_steps_back_keeps_no_record_beyond_its_ttl(world: World) -> None:
    here = limiter_on(world.stranger(cache_ttl=30))
    await world.repository.set_system_defaults(rpm(1))
    assert await capacity(here) == 1
    await world.repository.set_system_defaults(rpm(2))
    world.clock.advance(-3600)
    assert await capacity(here) == 2
    await world.repository.set_resource_defaults("gpt-4", rpm(3))
    world.clock.advance(30)
    assert await capacity(here) == 3


async def test_entities_without_records_of_their_own_share_one_resolution(world: World) -> None:
    await world.repository.set_system_defaults(rpm(1))
    scope = world.scope
    first, second = [await resolve(scope, entity, "gpt-4") for entity in ("a", "b")]
    assert first is second
    records = scope.local.config_cache.records(shared_slots("gpt-4"), scope.io.now_ms())
    assert shared_settings("gpt-4", *records.values()).resolution is first


async def test_namespaces_of_one_store_have_caches_of_their_own(world: World) -> None:
    await world.repository.register_namespace("other")
    other = await world.repository.namespace("other")
    await world.repository.set_system_defaults(rpm(1))
    await other.set_system_defaults(rpm(2))
    assert await capacity(world.limiter()) == 1
    assert await capacity(limiter_on(other)) == 2
    await other.invalidate_config_cache()
    assert world.repository.get_cache_stats().size > 0


@pytest.mark.parametrize("store_kind", SHARED, indirect=True)
async def test_a_read_that_a_change_overtakes_is_not_kept(world: World) -> None:
    """Only asyncio interleaves the two in one thread, but two threads may do so anywhere."""
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


async def test_a_task_that_asks_after_a_change_does_not_join_a_read_from_before() -> None:
    async with await Repository.open(url="memory://") as repository:
        await repository.set_system_defaults(rpm(1))
        scope, limiter = repository.scope, RateLimiter(repository)
        configs = scope.store.configs
        read, answered = configs.read, asyncio.Event()

        class Slow:
            """The first answer takes its time."""

            reads = 0

            def __getattr__(self, name: str) -> object:
                return getattr(configs, name)

            async def read(self, *arguments: object) -> object:
                self.reads += 1
                page = await read(*arguments)  # type: ignore[arg-type]
                if self.reads == 1:
                    await answered.wait()
                return page

        scope.store.configs = slow = Slow()  # type: ignore[misc,assignment]
        before = [asyncio.ensure_future(capacity(limiter)) for _ in range(2)]
        await asyncio.sleep(0)
        await repository.set_system_defaults(rpm(2))
        assert await capacity(limiter) == 2
        answered.set()
        assert await asyncio.gather(*before) == [1, 1]
        assert slow.reads == 2
        assert await capacity(limiter) == 2


class Interrupted(ConfigCache):
    """A cache that another thread invalidates as soon as a flow has asked it."""

    def records(self, slots: Slots, now_ms: int) -> dict[ConfigSlot, SharedRecord]:
        found = super().records(slots, now_ms)
        self.invalidate()
        return found


@pytest.mark.parametrize("store_kind", ["memory"], indirect=True)
async def test_a_resolution_from_before_an_invalidation_is_not_kept(world: World) -> None:
    scope = replace(world.scope, local=replace(world.scope.local, config_cache=Interrupted()))
    await resolve(scope, "key-1", "gpt-4")
    assert scope.local.config_cache.stats().size == 0
