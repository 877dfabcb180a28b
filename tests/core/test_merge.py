"""A merge makes one item of two siblings: a split backward."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import limits, quick
from zae_limiter.core.bucket import (
    full_bucket,
    is_another,
    merge,
    refill,
    retire,
    split,
    take_tokens,
)
from zae_limiter.core.limit import Limit, LimitSet
from zae_limiter.core.shards import RETIRED, Part

from .test_bucket import NOW_MS, STEPS_MS, bucket_with, refill_in_steps

LIMITS = LimitSet.of([Limit.per_minute("rpm", 60)])


@quick
@given(limits("x"), st.integers(-(10**7), 10**7), st.sampled_from([1, 2, 16]), st.data())
def test_a_split_undone_is_what_there_was(
    limit: Limit, tokens_milli: int, shard_count: int, data: st.DataObject
) -> None:
    shard = data.draw(st.integers(0, shard_count - 1))
    whole = bucket_with(LimitSet.of([limit]), {"x": 0}, shard_count)._replace(shard=shard)
    held_milli = min(tokens_milli, whole.ceiling_milli("x"))
    cell = whole.cells["x"]._replace(tokens_milli=held_milli)
    whole = whole._replace(cells={"x": cell}, generation="g" if shard_count > 1 else "")
    assert merge(*split(whole, "g")) == whole


@quick
@given(limits("x"), st.integers(1, 10**7), STEPS_MS, st.integers(0, 10**6))
def test_two_items_hold_as_one_what_they_held_apart(
    limit: Limit, debt_milli: int, steps_ms: list[int], later_ms: int
) -> None:
    lower, upper = split(bucket_with(LimitSet.of([limit]), {"x": -debt_milli}), "g")
    now_ms = NOW_MS + sum(steps_ms)
    lower, upper = refill_in_steps(lower, steps_ms), refill(upper, now_ms)
    merged = merge(lower, upper)
    assert merged is not None
    for then_ms in (now_ms, now_ms + later_ms):
        apart = [refill(half, then_ms).cells["x"].tokens_milli for half in (lower, upper)]
        held_milli = refill(merged, then_ms).cells["x"].tokens_milli
        assert 0 <= held_milli - sum(apart) <= 1 or max(apart) > 0


def test_items_with_other_limits_are_not_merged() -> None:
    lower, upper = split(full_bucket(LIMITS, NOW_MS), "g")
    other = full_bucket(LimitSet.of([Limit.per_minute("rpm", 7)]), NOW_MS)
    assert merge(lower, upper._replace(fingerprint=other.fingerprint)) is None
    assert merge(lower, upper._replace(cells={})) is None


def test_the_generation_ends_with_the_last_merge() -> None:
    lower, upper = split(full_bucket(LIMITS, NOW_MS), "g")
    first, second = split(lower, "other")
    assert (first.generation, second.generation, upper.generation) == ("g", "g", "g")
    half = merge(first, second)
    assert half is not None
    assert half.part == Part(2, "g")
    whole = merge(half, upper)
    assert whole is not None
    assert whole.part == Part(1, "")


def test_a_retired_item_keeps_its_counters_and_expires() -> None:
    item = take_tokens(full_bucket(LIMITS, NOW_MS), {"rpm": 5}, 3)._replace(shard=1)
    gone = retire(item, 9)
    assert (gone.generation, gone.expires_at_s) == (RETIRED, 9)
    assert (gone.cells, gone.acquires) == (item.cells, item.acquires)
    assert not is_another(item, gone)
    assert is_another(gone, item._replace(generation="next"))
