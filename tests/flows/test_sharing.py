"""Shards are shared out evenly, whoever came first, and then stay where they are."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.flows.stream.sharing import shards_to_ask_for
from zae_limiter.ports.stream import Checkpoint

NOW_MS = 1_000_000
LATER_MS = NOW_MS + 30_000


def leases(*owners: str) -> dict[str, Checkpoint]:
    return {f"s{n}": Checkpoint(None, owner, LATER_MS) for n, owner in enumerate(owners)}


def test_a_new_reader_asks_for_its_part() -> None:
    assert len(shards_to_ask_for("b", leases(*"aaaa"), NOW_MS)) == 2
    assert len(shards_to_ask_for("c", leases(*"aabb"), NOW_MS)) == 1


def test_a_difference_of_one_shard_is_left_as_it_is() -> None:
    for owners in ("", "a", "ab", "aab", "aabb"):
        assert not shards_to_ask_for("b", leases(*owners), NOW_MS)


def test_the_reader_with_most_shards_is_asked() -> None:
    (asked,) = shards_to_ask_for("c", leases(*"babb"), NOW_MS)
    assert asked != "s1"


def test_a_shard_that_was_asked_for_is_not_asked_for_again() -> None:
    known = leases(*"aaaa")
    known["s0"] = known["s0"]._replace(wanted_by="b")
    known["s1"] = known["s1"]._replace(wanted_by="b")
    assert not shards_to_ask_for("b", known, NOW_MS)
    assert len(shards_to_ask_for("c", known, NOW_MS)) == 1


def test_a_lease_that_has_ended_is_nobodys() -> None:
    ended = {each: known._replace(lease_ends_ms=NOW_MS) for each, known in leases(*"aaaa").items()}
    assert not shards_to_ask_for("b", ended, NOW_MS)


@given(st.lists(st.sampled_from("abcd"), max_size=30), st.lists(st.sampled_from("abcd")))
def test_asking_in_any_order_makes_parts_even_and_then_ends(owners: list[str], turns: str) -> None:
    known = leases(*owners)
    for owner in [*turns, *"abcd" * 3]:
        for shard_id in shards_to_ask_for(owner, known, NOW_MS):
            known[shard_id] = Checkpoint(None, owner, LATER_MS)
    had = Counter(dict.fromkeys("abcd", 0))
    had.update(each.owner for each in known.values())
    assert max(had.values()) - min(had.values()) <= 1
    assert not any(shards_to_ask_for(owner, known, NOW_MS) for owner in "abcd")
