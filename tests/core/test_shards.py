from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import quick
from zae_limiter.core.shards import (
    MAX_SHARDS,
    RETIRED,
    Part,
    free_count,
    halve,
    holes,
    in_force,
    owner,
    share,
    sibling,
    sums_to_one,
)

COUNTS = [1, 2, 4, 8, 16, 32]


@quick
@given(st.integers(-(10**18), 10**18))
def test_halves_sum_to_the_whole_and_differ_by_one_at_most(amount_milli: int) -> None:
    lower, upper = halve(amount_milli)
    assert lower + upper == amount_milli
    assert lower - upper in (0, 1)


@pytest.mark.parametrize("shard_count", COUNTS)
@quick
@given(st.integers(1, 10**18))
def test_shares_sum_to_the_capacity(shard_count: int, capacity_milli: int) -> None:
    shares = [share(capacity_milli, shard, shard_count) for shard in range(shard_count)]
    assert sum(shares) == capacity_milli
    assert max(shares) - min(shares) <= 1


@pytest.mark.parametrize("shard_count", COUNTS[:-1])
@quick
@given(st.integers(1, 10**18), st.integers(0, 31))
def test_a_split_divides_a_share_and_touches_no_other(
    shard_count: int, capacity_milli: int, number: int
) -> None:
    shard = number % shard_count
    before = share(capacity_milli, shard, shard_count)
    upper = sibling(shard, shard_count)
    assert halve(before) == (
        share(capacity_milli, shard, 2 * shard_count),
        share(capacity_milli, upper, 2 * shard_count),
    )


@pytest.mark.parametrize(
    ("shard", "shard_count", "expected"), [(0, 1, 1), (0, 2, 2), (1, 2, 3), (3, 4, 7), (15, 16, 31)]
)
def test_a_split_creates_the_shard_one_count_further(
    shard: int, shard_count: int, expected: int
) -> None:
    assert sibling(shard, shard_count) == expected


splits = st.lists(st.integers(0, MAX_SHARDS), max_size=40)


def partition(choices: list[int]) -> dict[int, int]:
    """The counts of items after these splits."""
    counts = {0: 1}
    for choice in choices:
        shard = sorted(counts)[choice % len(counts)]
        if counts[shard] < MAX_SHARDS:
            counts[sibling(shard, counts[shard])] = 2 * counts[shard]
            counts[shard] *= 2
    return counts


@quick
@given(splits, st.integers(0, MAX_SHARDS - 1))
def test_every_shard_is_part_of_one_item_and_splits_lead_there(
    choices: list[int], shard: int
) -> None:
    counts = partition(choices)
    assert [i for i, count in counts.items() if shard % count == i] == [owner(shard, counts)]
    while shard not in counts:
        source = owner(shard, counts)
        assert source is not None
        counts[sibling(source, counts[source])] = 2 * counts[source]
        counts[source] *= 2
    assert owner(shard, counts) == shard
    assert sums_to_one(counts.values())


@quick
@given(splits, st.data())
def test_shards_put_in_the_place_of_missing_ones_make_the_bucket_whole_again(
    choices: list[int], data: st.DataObject
) -> None:
    counts = partition(choices)
    gone = data.draw(st.sets(st.sampled_from(sorted(counts)), max_size=len(counts) - 1))
    counts = {shard: count for shard, count in counts.items() if shard not in gone}
    for shard in range(MAX_SHARDS):
        if owner(shard, counts) is None:
            counts[shard] = free_count(shard, counts)
    assert sums_to_one(counts.values())


def test_the_place_of_one_missing_item_is_filled_by_its_like() -> None:
    assert free_count(1, {0: 2, 3: 4}) == 4
    assert free_count(0, {1: 2}) == 2
    assert free_count(2, {0: 4, 1: 2}) == 4


def test_a_part_that_is_there_is_not_missing() -> None:
    with pytest.raises(AssertionError):
        free_count(3, {0: 2, 1: 2})


@pytest.mark.parametrize(("shard", "shard_count"), [(-1, 2), (2, 2), (0, 64), (0, 0)])
def test_a_shard_that_cannot_be_is_a_bug_of_the_caller(shard: int, shard_count: int) -> None:
    with pytest.raises(AssertionError):
        share(1000, shard, shard_count)


@pytest.mark.parametrize(("shard", "shard_count"), [(0, MAX_SHARDS), (2, 2), (-1, 2)])
def test_a_shard_that_cannot_be_split_has_no_sibling(shard: int, shard_count: int) -> None:
    with pytest.raises(AssertionError):
        sibling(shard, shard_count)


@pytest.mark.parametrize(
    ("shard_counts", "whole"),
    [
        ([1], True),
        ([2, 2], True),
        ([4, 2, 4], True),
        ([32] * 32, True),
        ([], False),
        ([2], False),
        ([1, 2], False),
        ([4, 4, 2, 4], False),
    ],
)
def test_items_are_all_of_a_bucket_when_their_parts_sum_to_one(
    shard_counts: list[int], whole: bool
) -> None:
    assert sums_to_one(shard_counts) is whole


parts = st.dictionaries(
    st.integers(0, MAX_SHARDS - 1),
    st.builds(Part, st.sampled_from(COUNTS), st.sampled_from(["", "one", "two", RETIRED])),
    max_size=12,
).map(lambda found: {shard: part for shard, part in found.items() if shard < part.shard_count})


@quick
@given(parts)
def test_items_in_force_never_overlap_and_have_one_generation(found: dict[int, Part]) -> None:
    counts = in_force(found)
    for shard in range(MAX_SHARDS):
        assert sum(shard % count == item for item, count in counts.items()) <= 1
    assert len({found[shard].generation for shard in counts}) <= 1
    if 0 in found and found[0].generation != RETIRED:
        assert counts[0] == found[0].shard_count


@quick
@given(parts)
def test_items_in_force_and_the_holes_beside_them_sum_to_one(found: dict[int, Part]) -> None:
    counts = in_force(found)
    missing = holes(counts)
    assert not counts.keys() & missing.keys()
    assert sums_to_one([*counts.values(), *missing.values()])
    assert not holes({**counts, **missing})


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({}, {}),
        ({0: Part(1, "")}, {0: 1}),
        ({0: Part(1, ""), 1: Part(2, "old")}, {0: 1}),
        ({0: Part(2, "new"), 1: Part(2, "old")}, {0: 2}),
        ({0: Part(2, "g"), 1: Part(2, "g"), 3: Part(4, "g")}, {0: 2, 1: 2}),
        ({0: Part(2, "g"), 1: Part(4, "g"), 3: Part(4, "g")}, {0: 2, 1: 4, 3: 4}),
        ({1: Part(2, "g"), 2: Part(4, "old")}, {1: 2}),
        ({0: Part(2, "g"), 1: Part(2, RETIRED)}, {0: 2}),
    ],
)
def test_item_zero_says_which_items_are_in_force(
    found: dict[int, Part], expected: dict[int, int]
) -> None:
    assert in_force(found) == expected
