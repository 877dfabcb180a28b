"""The entity cache, compared with a plain dict that never drops an entry by itself."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from zae_limiter import Limit
from zae_limiter.core.limit import LimitSet
from zae_limiter.flows.config.entity_cache import OWN_WEIGHT, EntityCache, ResolvedEntry
from zae_limiter.flows.config.resolution import Resolution

TTL_MS = 60_000
STEP_MS = TTL_MS // 64
PLAIN = Resolution(None, None, None, None, False)
OWN = Resolution(LimitSet.of([Limit.per_minute("rpm", 1)]), "entity", None, None, False)
ENTITIES = ["a", "b", "c", "d"]
RESOURCES = ["x", "y", "z"]
PAIRS = [(entity_id, resource) for entity_id in ENTITIES for resource in RESOURCES]
Model = dict[tuple[str, str], ResolvedEntry]


def entry_for(resource: str, since_ms: int = 0, resolution: Resolution = PLAIN) -> ResolvedEntry:
    return ResolvedEntry(resource, since_ms, since_ms + TTL_MS, resolution)


entities, resources = st.sampled_from(ENTITIES), st.sampled_from(RESOURCES)
steps = st.one_of(
    st.tuples(st.just("put"), entities, resources, st.sampled_from([PLAIN, OWN])),
    st.tuples(st.just("discard"), entities, st.none() | resources),
    st.tuples(st.just("discard_resource"), resources),
    st.tuples(st.just("wait"), st.integers(0, TTL_MS)),
    st.tuples(st.just("clear")),
)


@given(tape=st.lists(steps, max_size=40), max_entries=st.sampled_from([3, 25, 1_000]))
def test_the_cache_finds_the_last_entry_that_was_put_and_not_discarded(
    tape: list[tuple[object, ...]], max_entries: int
) -> None:
    cache = EntityCache(max_entries, TTL_MS)
    model: Model = {}
    now_ms = 0
    for step in tape:
        match step:
            case ("put", str(entity_id), str(resource), Resolution() as resolution):
                model[entity_id, resource] = entry_for(resource, now_ms, resolution)
                cache.put(entity_id, model[entity_id, resource], now_ms)
            case ("discard", str(entity_id), str() | None as resource):
                cache.discard(entity_id, resource)
                model = {p: e for p, e in model.items() if not is_hit(p, entity_id, resource)}
            case ("discard_resource", str(resource)):
                cache.discard_resource(resource)
                model = {pair: e for pair, e in model.items() if pair[1] != resource}
            case ("wait", int(wait_ms)):
                now_ms += wait_ms
            case _:
                cache.clear()
                model.clear()
        check(cache, model, now_ms, max_entries)


def is_hit(pair: tuple[str, str], entity_id: str, resource: str | None) -> bool:
    return pair[0] == entity_id and resource in (None, pair[1])


def check(cache: EntityCache, model: Model, now_ms: int, max_entries: int) -> None:
    found = {pair: e for pair in PAIRS if (e := cache.get(*pair)) is not None}
    for pair, entry in found.items():
        assert stands_for(entry, model[pair])
    assert len(cache) == len(found)
    assert sum(entry.weight for entry in found.values()) <= max_entries
    if max_entries > OWN_WEIGHT * len(PAIRS):
        # An entry may leave by as much earlier as the shared one is older.
        fresh = {pair for pair, e in model.items() if now_ms < e.since_ms + TTL_MS - STEP_MS}
        assert fresh <= found.keys()


def stands_for(shared: ResolvedEntry, entry: ResolvedEntry) -> bool:
    """Whether an entry says the same as another and ends with it, or hardly earlier."""
    return (
        shared.resource == entry.resource
        and shared.resolution is entry.resolution
        and 0 <= entry.since_ms - shared.since_ms <= STEP_MS
        and 0 <= entry.until_ms - shared.until_ms <= STEP_MS
    )


def put(cache: EntityCache, entity_id: str, entry: ResolvedEntry) -> ResolvedEntry:
    """The entry that the cache holds after one was put."""
    cache.put(entity_id, entry, entry.since_ms)
    found = cache.get(entity_id, entry.resource)
    assert found is not None
    return found


def test_entities_resolved_at_about_the_same_time_share_an_entry() -> None:
    cache = EntityCache(1_000, ttl_ms=64_000)
    first = ResolvedEntry("x", 0, 64_000, PLAIN)
    assert put(cache, "a", first) is first
    assert put(cache, "b", ResolvedEntry("x", 1_000, 65_000, PLAIN)) is first
    for other in (
        ResolvedEntry("x", 1_001, 65_001, PLAIN),
        ResolvedEntry("y", 1_001, 65_001, PLAIN),
        ResolvedEntry("x", 1_001, 65_001, OWN),
    ):
        assert put(cache, "c", other) is other


@given(moments=st.lists(st.tuples(st.integers(0, 300_000), st.integers(0, TTL_MS)), max_size=30))
def test_a_shared_entry_never_lasts_longer_than_that_which_was_put(
    moments: list[tuple[int, int]],
) -> None:
    cache = EntityCache(1_000, TTL_MS)
    for number, (since_ms, known_for_ms) in enumerate(moments):
        entry = ResolvedEntry("x", since_ms, since_ms + TTL_MS - known_for_ms, PLAIN)
        assert stands_for(put(cache, f"key-{number}", entry), entry)


def test_the_newest_entities_stay_when_there_are_too_many() -> None:
    cache = EntityCache(10, TTL_MS)
    for number in range(1_000):
        cache.put(f"key-{number}", entry_for("x"), 0)
    assert len(cache) == 10
    assert all(cache.get(f"key-{number}", "x") for number in range(990, 1_000))


def test_the_resources_of_one_entity_are_bounded() -> None:
    cache = EntityCache(10, TTL_MS)
    for number in range(1_000):
        cache.put("key-1", entry_for(f"model-{number}"), 0)
        assert len(cache) <= 10


def test_an_entry_with_limits_of_its_own_counts_for_more() -> None:
    cache = EntityCache(100, TTL_MS)
    for number in range(100):
        cache.put(f"key-{number}", entry_for("x", resolution=OWN), 0)
    assert len(cache) == 100 // OWN_WEIGHT


def test_entities_that_are_not_seen_again_leave() -> None:
    cache = EntityCache(1_000_000, TTL_MS)
    for number in range(10_000):
        # A hundred come in each TTL.
        now_ms = number * TTL_MS // 100
        cache.put(f"key-{number}", entry_for("x", now_ms), now_ms)
        assert len(cache) <= 200


def test_resources_that_an_entity_does_not_use_again_leave() -> None:
    cache = EntityCache(1_000_000, TTL_MS)
    for number in range(10_000):
        now_ms = number * TTL_MS // 100
        cache.put("key-1", entry_for(f"model-{number}", now_ms), now_ms)
        assert len(cache) <= 200


def test_a_resource_that_stays_does_not_keep_stale_resources_from_leaving() -> None:
    cache = EntityCache(1_000_000, TTL_MS)
    for number in range(1_000):
        now_ms = number * TTL_MS // 100
        cache.put("key-1", entry_for("x", now_ms), now_ms)
        cache.put("key-1", entry_for(f"model-{number}", now_ms), now_ms)
        assert len(cache) <= 200


def test_an_entity_that_stays_does_not_keep_stale_entities_from_leaving() -> None:
    cache = EntityCache(1_000_000, TTL_MS)
    for number in range(1_000):
        now_ms = number * TTL_MS // 100
        cache.put("key-0", entry_for("x", now_ms), now_ms)
        cache.put(f"key-{number}", entry_for("x", now_ms), now_ms)
        assert len(cache) <= 200


def test_an_entity_that_is_put_and_discarded_again_and_again_takes_no_more_memory() -> None:
    cache = EntityCache(1_000, TTL_MS)
    tracemalloc.start()
    for number in range(10_000):
        cache.put("key-1", entry_for("x"), 0)
        cache.discard("key-1")
        if number == 1_000:
            before, _ = tracemalloc.get_traced_memory()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 10_000


def test_discarded_entities_count_against_the_bound() -> None:
    cache = EntityCache(10, TTL_MS)
    for number in range(1_000):
        cache.put(f"key-{number}", entry_for("x"), 0)
        if number % 2:
            cache.discard(f"key-{number}")
        assert len(cache._ring) == len(cache._held) <= 10


def test_an_entity_takes_little_memory_besides_its_id() -> None:
    ids = [f"key-{number:016}" for number in range(50_000)]
    cache = EntityCache(1_000_000, TTL_MS)
    tracemalloc.start()
    for entity_id in ids:
        cache.put(entity_id, entry_for("x"), 0)
    taken_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken_bytes / len(ids) < 120
