"""An amount is split over the items of a bucket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import quick
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.flows.shards.split_amount import Balances, split_amount, suffices

HOME = BucketAddress("n", "key", "api")
amounts = st.integers(0, 10) | st.integers(0, 10**12)


def balances(*held_milli: int) -> Balances:
    return {HOME._replace(shard=i): {"rpm": held} for i, held in enumerate(held_milli)}


@quick
@given(st.lists(amounts, min_size=1, max_size=32), st.data())
def test_parts_sum_to_the_amount_and_no_item_gives_more_than_it_has(
    held_milli: list[int], data: st.DataObject
) -> None:
    asked_milli = data.draw(st.integers(0, sum(held_milli)))
    reserve_pct = data.draw(st.integers(0, 90))
    held = balances(*held_milli)
    parts = split_amount(held, {"rpm": asked_milli}, reserve_pct)
    assert sum(part["rpm"] for part in parts.values()) == asked_milli
    assert all(0 < part["rpm"] <= held[address]["rpm"] for address, part in parts.items())


@pytest.mark.parametrize(
    ("reserve_pct", "expected"), [(0, {3: 924, 4: 876}), (25, {3: 632, 4: 600, 1: 568})]
)
def test_few_items_give_and_keep_a_reserve(reserve_pct: int, expected: dict[int, int]) -> None:
    parts = split_amount(balances(100, 900, 0, 1000, 950), {"rpm": 1800}, reserve_pct)
    assert {address.shard: part["rpm"] for address, part in parts.items()} == expected


def test_all_items_give_all_they_have_if_needed() -> None:
    parts = split_amount(balances(3, 5, 0), {"rpm": 8}, 25)
    assert {address.shard: part["rpm"] for address, part in parts.items()} == {0: 3, 1: 5}


def test_each_limit_is_taken_from_the_items_that_hold_it() -> None:
    held = {HOME: {"rpm": 10, "tpm": 0}, HOME._replace(shard=1): {"rpm": 0, "tpm": 10}}
    parts = split_amount(held, {"rpm": 10, "tpm": 4}, 0)
    assert parts == {HOME: {"rpm": 10}, HOME._replace(shard=1): {"tpm": 4}}


def test_a_reserve_is_left_of_every_limit() -> None:
    held = {HOME: {"rpm": 8, "tpm": 100}, HOME._replace(shard=1): {"rpm": 4, "tpm": 100}}
    assert suffices(held, {"rpm": 9, "tpm": 1}, 25)
    assert not suffices(held, {"rpm": 10, "tpm": 1}, 25)
    assert not suffices(held, {"rpm": 1, "tpm": 151}, 25)
