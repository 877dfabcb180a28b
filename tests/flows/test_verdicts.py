"""Verdicts, compared with the simplest thing that could remember them."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from zae_limiter import Limit
from zae_limiter.core.limit import LimitSet
from zae_limiter.flows.config.entity_cache import OWN_WEIGHT, Verdict, Verdicts
from zae_limiter.flows.config.resolution import Resolution

TTL_MS = 60_000
NOBODY = Resolution(None, None, None, None, False)
OWN = Resolution(LimitSet.of([Limit.per_minute("rpm", 1)]), "entity", None, None, False)
ENTITIES = ["a", "b", "c", "d"]
RESOURCES = ["x", "y", "z"]
PAIRS = [(entity_id, resource) for entity_id in ENTITIES for resource in RESOURCES]


def verdict(resource: str, since_ms: int = 0, resolution: Resolution = NOBODY) -> Verdict:
    return Verdict(resource, since_ms, since_ms + TTL_MS, resolution)


entities, resources = st.sampled_from(ENTITIES), st.sampled_from(RESOURCES)
steps = st.one_of(
    st.tuples(st.just("put"), entities, resources, st.sampled_from([NOBODY, OWN])),
    st.tuples(st.just("discard"), entities, st.none() | resources),
    st.tuples(st.just("discard_everywhere"), resources),
    st.tuples(st.just("wait"), st.integers(0, TTL_MS)),
    st.tuples(st.just("clear")),
)


@given(tape=st.lists(steps, max_size=40), max_entries=st.sampled_from([3, 25, 1_000]))
def test_what_is_found_is_what_was_put_last_and_never_forgotten_since(
    tape: list[tuple[object, ...]], max_entries: int
) -> None:
    verdicts = Verdicts(max_entries, TTL_MS)
    model: dict[tuple[str, str], Verdict] = {}
    now_ms = 0
    for step in tape:
        match step:
            case ("put", str(entity_id), str(resource), Resolution() as resolution):
                model[entity_id, resource] = verdict(resource, now_ms, resolution)
                verdicts.put(entity_id, model[entity_id, resource], now_ms)
            case ("discard", str(entity_id), str() | None as resource):
                verdicts.discard(entity_id, resource)
                model = {p: v for p, v in model.items() if not is_hit(p, entity_id, resource)}
            case ("discard_everywhere", str(resource)):
                verdicts.discard_everywhere(resource)
                model = {pair: v for pair, v in model.items() if pair[1] != resource}
            case ("wait", int(wait_ms)):
                now_ms += wait_ms
            case _:
                verdicts.clear()
                model.clear()
        check(verdicts, model, now_ms, max_entries)


def is_hit(pair: tuple[str, str], entity_id: str, resource: str | None) -> bool:
    return pair[0] == entity_id and resource in (None, pair[1])


def check(
    verdicts: Verdicts, model: dict[tuple[str, str], Verdict], now_ms: int, max_entries: int
) -> None:
    found = {pair: v for pair in PAIRS if (v := verdicts.get(*pair)) is not None}
    assert found.items() <= model.items()
    assert len(verdicts) == len(found)
    assert sum(v.weight for v in found.values()) <= max_entries
    if max_entries > OWN_WEIGHT * len(PAIRS):
        fresh = {pair for pair, v in model.items() if now_ms < v.since_ms + TTL_MS}
        assert fresh <= found.keys()


def test_the_newest_stay_when_there_are_too_many() -> None:
    verdicts = Verdicts(10, TTL_MS)
    for number in range(1_000):
        verdicts.put(f"key-{number}", verdict("x"), 0)
    assert len(verdicts) == 10
    assert all(verdicts.get(f"key-{number}", "x") for number in range(990, 1_000))


def test_the_resources_of_one_entity_are_bounded_too() -> None:
    verdicts = Verdicts(10, TTL_MS)
    for number in range(1_000):
        verdicts.put("key-1", verdict(f"model-{number}"), 0)
        assert len(verdicts) <= 10


def test_what_has_limits_of_its_own_counts_for_more() -> None:
    verdicts = Verdicts(100, TTL_MS)
    for number in range(100):
        verdicts.put(f"key-{number}", verdict("x", resolution=OWN), 0)
    assert len(verdicts) == 100 // OWN_WEIGHT


def test_entities_that_are_not_seen_again_leave() -> None:
    verdicts = Verdicts(1_000_000, TTL_MS)
    for number in range(10_000):
        # A hundred come in each lifetime.
        now_ms = number * TTL_MS // 100
        verdicts.put(f"key-{number}", verdict("x", now_ms), now_ms)
        assert len(verdicts) <= 200


def test_resources_that_an_entity_is_not_seen_with_again_leave() -> None:
    verdicts = Verdicts(1_000_000, TTL_MS)
    for number in range(10_000):
        now_ms = number * TTL_MS // 100
        verdicts.put("key-1", verdict(f"model-{number}", now_ms), now_ms)
        assert len(verdicts) <= 200


def test_a_resource_that_stays_does_not_keep_others_from_leaving() -> None:
    verdicts = Verdicts(1_000_000, TTL_MS)
    for number in range(1_000):
        now_ms = number * TTL_MS // 100
        verdicts.put("key-1", verdict("x", now_ms), now_ms)
        verdicts.put("key-1", verdict(f"model-{number}", now_ms), now_ms)
        assert len(verdicts) <= 200


def test_an_entity_that_stays_does_not_keep_others_from_leaving() -> None:
    verdicts = Verdicts(1_000_000, TTL_MS)
    for number in range(1_000):
        now_ms = number * TTL_MS // 100
        verdicts.put("key-0", verdict("x", now_ms), now_ms)
        verdicts.put(f"key-{number}", verdict("x", now_ms), now_ms)
        assert len(verdicts) <= 200


def test_nothing_is_left_of_what_is_forgotten_again_and_again() -> None:
    verdicts = Verdicts(1_000, TTL_MS)
    tracemalloc.start()
    for number in range(10_000):
        verdicts.put("key-1", verdict("x"), 0)
        verdicts.discard("key-1")
        if number == 1_000:
            before, _ = tracemalloc.get_traced_memory()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 10_000


def test_entities_of_which_nothing_is_left_are_bounded_with_the_others() -> None:
    verdicts = Verdicts(10, TTL_MS)
    for number in range(1_000):
        verdicts.put(f"key-{number}", verdict("x"), 0)
        if number % 2:
            verdicts.discard(f"key-{number}")
        assert len(verdicts._ring) == len(verdicts._held) <= 10


def test_an_entity_takes_little_beyond_its_id() -> None:
    ids = [f"key-{number:016}" for number in range(50_000)]
    shared = verdict("x")
    verdicts = Verdicts(1_000_000, TTL_MS)
    tracemalloc.start()
    for entity_id in ids:
        verdicts.put(entity_id, shared, 0)
    taken_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken_bytes / len(ids) < 120
