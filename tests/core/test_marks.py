"""Marks in operation ids tell whether tokens of an item may be about to come back."""

from __future__ import annotations

import pytest

from zae_limiter.core.idempotency import operation_id, operation_name, planned_at_ms
from zae_limiter.core.marks import LONGEST_HELD_MS, held_at_ms, is_marked, mark_ancestor, mark_leaf

OPERATION = operation_id(1_700_000_000_000, "abcde1f")


def test_an_id_without_a_mark_tells_of_no_charge_that_may_be_undone() -> None:
    assert not is_marked(OPERATION)
    assert held_at_ms([OPERATION]) is None
    assert held_at_ms([]) is None


@pytest.mark.parametrize("marked", [mark_leaf(OPERATION), mark_ancestor(OPERATION, 4080)])
def test_a_marked_id_keeps_its_time_and_its_name(marked: str) -> None:
    assert is_marked(marked)
    assert planned_at_ms(marked) == planned_at_ms(OPERATION)
    assert operation_name(marked).endswith(operation_name(OPERATION))


def test_a_charge_of_a_leaf_holds_nothing_of_an_ancestor() -> None:
    assert held_at_ms([mark_leaf(OPERATION)]) is None


@pytest.mark.parametrize("ago_ms", [0, 16, 160, LONGEST_HELD_MS])
def test_a_mark_that_is_handed_on_tells_when_the_ancestor_was_charged(ago_ms: int) -> None:
    handed_on = mark_ancestor(OPERATION, ago_ms)
    assert held_at_ms([OPERATION, handed_on]) == planned_at_ms(OPERATION) - ago_ms


def test_the_last_charge_of_an_ancestor_counts() -> None:
    later = operation_id(1_700_000_000_090, "fffff2")
    assert held_at_ms([mark_ancestor(later, 88), mark_ancestor(OPERATION)]) == 1_700_000_000_010
