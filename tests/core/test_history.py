from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import quick
from zae_limiter.core.limit import Limit
from zae_limiter.testing.history import (
    Event,
    Window,
    assert_window_theorem,
    window_excess,
    worst_window,
)

CAPACITY, AMOUNT, PERIOD = 10_000, 1_000, 1_000  # 10 tokens at once, 1 token a second

events_of_one_limit = st.lists(
    st.builds(
        Event,
        st.integers(-25, 25),
        st.just("rps"),
        st.integers(-40, 40),
        st.booleans(),
    ),
    max_size=12,
)


def taken(at_ms: int, amount_milli: int) -> Event:
    return Event(at_ms, "rps", amount_milli, admitted=True)


def adjusted(at_ms: int, amount_milli: int) -> Event:
    return Event(at_ms, "rps", amount_milli, admitted=False)


def excess(*events: Event, skew_ms: int = 0) -> Fraction:
    return window_excess(
        events,
        capacity_milli=CAPACITY,
        refill_amount_milli=AMOUNT,
        refill_period_ms=PERIOD,
        skew_ms=skew_ms,
    )


def every_interval(
    events: list[Event], capacity: int, amount: int, period: int, skew_ms: int
) -> Fraction:
    """The definition: look at each pair of admissions and add up what lies between."""
    ordered = sorted(events, key=lambda event: event.at_ms)
    bound = Fraction(capacity) + Fraction(amount * skew_ms, period)
    found = [-bound]
    for first, start in enumerate(ordered):
        for last, end in enumerate(ordered[first:], first):
            if start.is_admission and end.is_admission:
                net = sum(event.amount_milli for event in ordered[first : last + 1])
                gained = Fraction(amount * (end.at_ms - start.at_ms), period)
                found.append(net - gained - bound)
    return max(found)


@quick
@given(
    events_of_one_limit,
    st.integers(1, 60),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(0, 5),
)
def test_one_pass_finds_what_looking_at_every_interval_finds(
    events: list[Event], capacity: int, amount: int, period: int, skew_ms: int
) -> None:
    found = window_excess(
        events,
        capacity_milli=capacity,
        refill_amount_milli=amount,
        refill_period_ms=period,
        skew_ms=skew_ms,
    )
    assert found == every_interval(events, capacity, amount, period, skew_ms)


def test_a_burst_of_the_capacity_and_then_the_rate_is_just_allowed() -> None:
    assert excess(taken(0, 10_000), taken(1000, 1000), taken(5500, 4500)) == 0


@pytest.mark.parametrize("late", [0, 1000, 5500])
def test_one_millitoken_too_many_is_found(late: int) -> None:
    events = [taken(0, 10_000), taken(1000, 1000), taken(5500, 4500)]
    events.append(taken(late, 1))
    assert excess(*events) == 1


def test_a_part_of_a_millitoken_too_many_is_found() -> None:
    found = window_excess(
        [taken(0, 10), taken(1, 1)],
        capacity_milli=10,
        refill_amount_milli=2,
        refill_period_ms=3,
    )
    assert found == Fraction(1, 3)


def test_refunded_tokens_may_be_taken_again() -> None:
    assert excess(taken(0, 10_000), adjusted(0, -4000), taken(0, 4000)) == 0
    assert excess(taken(0, 10_000), taken(0, 4000), adjusted(0, -4000)) == 4000


def test_debt_of_an_adjust_must_be_repaid_before_the_next_admission() -> None:
    assert excess(taken(0, 10_000), adjusted(0, 5000), taken(6000, 1000)) == 0
    assert excess(taken(0, 10_000), adjusted(0, 5000), taken(5999, 1000)) == 1


def test_an_adjust_by_itself_may_charge_anything() -> None:
    assert excess(adjusted(0, 99_000), adjusted(1, 1)) == -CAPACITY


def test_an_adjust_may_charge_late_for_what_was_used_before() -> None:
    assert excess(adjusted(0, 5000), taken(0, 10_000)) == 0


def test_an_admission_that_asks_nothing_is_let_through_in_debt() -> None:
    assert excess(taken(0, 10_000), adjusted(0, 5000), taken(1, 0)) == 0


def test_skew_allows_what_accrues_in_it() -> None:
    events = taken(0, 10_000), taken(0, 2000)
    assert excess(*events) == 2000
    assert excess(*events, skew_ms=1999) == 1
    assert excess(*events, skew_ms=2000) == 0


def test_no_events_let_nothing_out() -> None:
    assert excess() == -CAPACITY


def test_events_are_put_in_order_of_time() -> None:
    assert excess(taken(3000, 3000), taken(0, 10_000)) == 0


def test_the_worst_window_says_where_it_is() -> None:
    events = [taken(0, 3000), taken(20_000, 8000), adjusted(20_500, 500), taken(21_000, 4000)]
    window = worst_window(
        [*events, taken(60_000, 1000)],
        capacity_milli=CAPACITY,
        refill_amount_milli=AMOUNT,
        refill_period_ms=PERIOD,
    )
    assert window == Window(20_000, 21_000, 12_500, Fraction(1500))


def test_a_history_within_the_limits_passes() -> None:
    limits = [Limit.per_second("rps", 1, burst=10), Limit.per_second("tps", 5)]
    history = [taken(0, 10_000), Event(0, "tps", 5000, True), taken(1000, 1000)]
    assert_window_theorem({"a": history, "b": history}, limits)


def test_a_history_beyond_them_names_bucket_limit_excess_and_interval() -> None:
    limits = [Limit.per_second("rps", 1, burst=10), Limit.per_second("tps", 5)]
    good = [taken(0, 10_000)]
    bad = [*good, Event(7, "tps", 5000, True), Event(8, "tps", 6, True)]
    with pytest.raises(AssertionError) as caught:
        assert_window_theorem({"good": good, "bad": bad}, limits)
    message = str(caught.value)
    assert "Bucket bad let out 5006 millitokens of tps from 7 ms to 8 ms, 1.000 more" in message
    assert_window_theorem({"good": good, "bad": bad}, limits, skew_ms=1)


def test_a_limit_that_nobody_declared_is_not_passed_over() -> None:
    with pytest.raises(KeyError, match="rps"):
        assert_window_theorem({"a": [taken(0, 1)]}, [])
