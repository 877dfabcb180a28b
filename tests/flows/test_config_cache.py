from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.drivers import SHARED, World, limiter_on, take
from zae_limiter import Limit, LimiterConfig, RateLimiter, Repository, ValidationError
from zae_limiter.core.hierarchy import SYSTEM_SLOT, ConfigSlot
from zae_limiter.core.models import ConfigSource
from zae_limiter.core.validation import DEFAULT_RESOURCE
from zae_limiter.flows.config.cache import ConfigCache
from zae_limiter.flows.config.entity_cache import Verdict
from zae_limiter.flows.config.resolution import Defaults, Record, Resolution
from zae_limiter.flows.config.resolve import resolve
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


async def test_what_all_share_is_remembered_for_its_lifetime_whoever_asks(world: World) -> None:
    here = limiter_on(world.stranger(cache_ttl=30))
    await world.repository.set_system_defaults(rpm(1))
    assert await capacity(here, "a") == 1
    await world.repository.set_system_defaults(rpm(2))
    world.clock.advance(29.999)
    assert [await capacity(here, entity) for entity in ("a", "b")] == [1, 1]
    world.clock.advance(0.001)
    assert [await capacity(here, entity) for entity in ("a", "b", "c")] == [2, 2, 2]


@pytest.mark.parametrize("level", get_args(ConfigSource))
async def test_a_change_at_any_level_arrives_within_the_lifetime_whenever_the_others_were_read(
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


async def test_what_is_known_of_an_entity_outlives_what_all_share(world: World) -> None:
    """Which is read again by the first who needs it, and by nobody else."""
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
async def test_entities_without_records_are_told_from_those_that_have_some(
    world: World, monkeypatch: pytest.MonkeyPatch, at_most: int
) -> None:
    """Also where there are too many of these to be remembered."""
    monkeypatch.setattr("zae_limiter.flows.config.resolve._MAX_NAMED", at_most)
    await world.repository.set_system_defaults(rpm(100))
    await world.repository.set_limits("key-1", rpm(7), "gpt-4")
    await world.repository.create_entity("key-2", parent_id="key-1", cascade=True)
    here = limiter_on(world.stranger())
    for entity_id, limit in [("key-0", 100), ("key-1", 7), ("key-2", 7), ("key-3", 100)]:
        assert await capacity(here, entity_id) == limit


@pytest.mark.parametrize("store_kind", ["sqlite"])
async def test_a_file_is_not_asked_for_each_entity_that_has_no_records(
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


NOBODY = Resolution(None, None, None, None, False)


def kept(cache: ConfigCache, entity_id: str, since_ms: int, until_ms: int) -> Verdict:
    """What the cache makes of a verdict."""
    verdict = Verdict("gpt-4", since_ms, until_ms, NOBODY)
    cache.keep(cache.generation, entity_id, verdict, since_ms)
    found = cache.verdict(entity_id, "gpt-4")
    assert found is not None
    return found


def test_records_are_bounded() -> None:
    cache = ConfigCache(ttl_seconds=60, max_entries=10)
    places = [ConfigSlot(resource=f"model-{number}") for number in range(1_000)]
    for slot in places:
        cache.keep_records(0, {slot: Record(0, LimiterConfig())})
    assert cache.stats().size == 10
    assert list(cache.records(places, 59_999)) == places[-10:]
    assert cache.records(places, 60_000) == {}


def test_entities_that_come_at_about_the_same_time_share_a_verdict() -> None:
    cache = ConfigCache(ttl_seconds=64)
    first = kept(cache, "a", 0, 64_000)
    assert kept(cache, "b", 1_000, 65_000) is first
    assert kept(cache, "c", 1_001, 65_001) is not first


@given(moments=st.lists(st.tuples(st.integers(0, 300_000), st.integers(0, 60_000)), max_size=30))
def test_a_shared_verdict_never_lasts_longer(moments: list[tuple[int, int]]) -> None:
    cache = ConfigCache(ttl_seconds=60)
    for number, (since_ms, known_for_ms) in enumerate(moments):
        until_ms = since_ms + 60_000 - known_for_ms
        found = kept(cache, f"key-{number}", since_ms, until_ms)
        assert since_ms - 60_000 // 64 <= found.since_ms <= since_ms
        assert until_ms - 60_000 // 64 <= found.until_ms <= until_ms


def test_nothing_is_kept_over_a_change() -> None:
    cache = ConfigCache()
    generation = cache.generation
    cache.invalidate("somebody")
    cache.keep(generation, "key-1", Verdict("gpt-4", 0, 60_000, NOBODY), 0)
    cache.keep_records(generation, {SYSTEM_SLOT: Record(0, None)})
    cache.keep_defaults(generation, "gpt-4", Defaults(0, NOBODY))
    assert cache.stats().size == 0
    assert cache.shared("gpt-4", 0) == {}


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
    scope = world.scope
    first, second = [await resolve(scope, entity, "gpt-4") for entity in ("a", "b")]
    assert first is second
    shared = scope.local.config_cache.shared("gpt-4", scope.io.now_ms())
    assert isinstance(shared, Defaults)
    assert shared.resolution is first


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


async def test_who_asks_after_a_change_does_not_hear_what_was_read_before() -> None:
    """Though that reading has not ended yet."""
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
    """Another thread changes something when a flow has asked for what is known."""

    def shared(self, resource: str, now_ms: int) -> Defaults | dict[ConfigSlot, Record]:
        found = super().shared(resource, now_ms)
        self.invalidate()
        return found


@pytest.mark.parametrize("store_kind", ["memory"], indirect=True)
async def test_what_was_known_before_a_change_is_not_remembered_after_it(world: World) -> None:
    scope = replace(world.scope, local=replace(world.scope.local, config_cache=Interrupted()))
    await resolve(scope, "key-1", "gpt-4")
    assert scope.local.config_cache.stats().size == 0
