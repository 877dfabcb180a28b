from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.backends.dynamodb.wire.server_clock import ServerClock

_NOW_S = 1_700_000_000.0


def _date(at_s: float) -> str:
    return formatdate(at_s, usegmt=True)


@given(
    st.floats(-1e6, 1e6),
    st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=8),
)
def test_the_offset_is_right_within_the_tolerance_and_the_wait(
    truth_s: float, trips: list[tuple[float, float]]
) -> None:
    clock = ServerClock()
    sent_s = _NOW_S
    narrowest_s = float("inf")
    for there_s, back_s in trips:
        stamped_s = sent_s + there_s + truth_s
        clock.observe(_date(stamped_s), sent_s, sent_s + there_s + back_s)
        narrowest_s = min(narrowest_s, there_s + back_s)
        assert abs(clock.offset_s - truth_s) <= 2 + 1 + narrowest_s + 0.001
        sent_s += 20


@given(st.floats(-1.9, 1.9), st.floats(0, 30))
def test_a_clock_that_is_about_right_is_left_alone(truth_s: float, wait_s: float) -> None:
    clock = ServerClock()
    assert not clock.observe(_date(_NOW_S + truth_s), _NOW_S, _NOW_S + wait_s)
    assert clock.offset_ms == 0


def test_a_clock_that_was_put_right_counts_again() -> None:
    clock = ServerClock()
    assert clock.observe(_date(_NOW_S + 300), _NOW_S, _NOW_S + 0.1)
    assert abs(clock.offset_ms - 300_000) <= 1_000
    assert clock.observe(_date(_NOW_S + 301), _NOW_S + 301, _NOW_S + 301.1)
    assert clock.offset_ms == 0


def test_a_slow_answer_does_not_undo_the_estimate_of_a_fast_answer() -> None:
    clock = ServerClock()
    clock.observe(_date(_NOW_S + 10), _NOW_S, _NOW_S + 0.1)
    learned = clock.offset_s
    assert not clock.observe(_date(_NOW_S + 20), _NOW_S + 1, _NOW_S + 25)
    assert clock.offset_s == learned


@pytest.mark.parametrize("date", [None, "", "yesterday"])
def test_no_date_teaches_nothing(date: str | None) -> None:
    clock = ServerClock()
    assert not clock.observe(date, _NOW_S, _NOW_S)
    assert clock.offset_ms == 0
