from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.strategies import quick
from zae_limiter.core.shards import MAX_SHARDS, halve, is_whole, origin, share, sibling

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
    assert origin(expected) == shard


@pytest.mark.parametrize("shard", range(1, MAX_SHARDS))
def test_every_shard_but_the_first_comes_from_a_split(shard: int) -> None:
    shard_count = 1 << shard.bit_length() - 1
    assert sibling(origin(shard), shard_count) == shard


@pytest.mark.parametrize(("shard", "shard_count"), [(-1, 2), (2, 2), (0, 64), (0, 0)])
def test_a_shard_that_cannot_be_is_a_bug_of_the_caller(shard: int, shard_count: int) -> None:
    with pytest.raises(AssertionError):
        share(1000, shard, shard_count)


@pytest.mark.parametrize(("shard", "shard_count"), [(0, MAX_SHARDS), (2, 2), (-1, 2)])
def test_what_cannot_be_split_has_no_sibling(shard: int, shard_count: int) -> None:
    with pytest.raises(AssertionError):
        sibling(shard, shard_count)


def test_the_first_shard_has_no_origin() -> None:
    with pytest.raises(AssertionError):
        origin(0)


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
    assert is_whole(shard_counts) is whole
