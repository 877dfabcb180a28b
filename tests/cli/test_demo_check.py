"""The demo's check never blames a bucket that kept its limits, and finds every excess."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.cli.demo.check import judge_run
from zae_limiter.cli.demo.record import Movement
from zae_limiter.core.limit import MILLI, Limit

LIMIT = Limit.per_second("rps", 10)


def take(tokens: int, began_ms: int, ended_ms: int | None = None) -> Movement:
    ended_ms = began_ms if ended_ms is None else ended_ms
    return Movement(began_ms, ended_ms, tokens * MILLI, admitted=True)


def correct(tokens: int, began_ms: int, ended_ms: int | None) -> Movement:
    return Movement(began_ms, ended_ms, tokens * MILLI, admitted=False)


def test_a_run_that_takes_all_that_is_allowed_holds() -> None:
    verdict = judge_run(LIMIT, [take(10, 0), take(5, 500), take(5, 1000)], skew_ms=0)
    assert verdict.holds
    assert verdict.whole.taken_milli == 20_000
    assert verdict.whole.excess_milli == verdict.worst.excess_milli == 0


def test_a_run_that_takes_one_token_too_many_does_not_hold() -> None:
    verdict = judge_run(LIMIT, [take(10, 0), take(6, 500), take(5, 1000)], skew_ms=0)
    assert not verdict.holds
    assert verdict.whole.excess_milli == 1000
    assert (verdict.worst.start_ms, verdict.worst.end_ms) == (0, 500)


def test_too_much_in_a_short_interval_shows_though_the_whole_run_is_fine() -> None:
    verdict = judge_run(LIMIT, [take(1, 0), take(11, 9_000), take(1, 20_000)], skew_ms=0)
    assert verdict.whole.excess_milli < 0
    assert not verdict.holds


def test_a_run_without_calls_holds() -> None:
    assert judge_run(LIMIT, [], skew_ms=0).holds


def test_tokens_that_were_refunded_can_be_taken_again() -> None:
    calls = [take(10, 0), correct(-4, 1, 2), take(4, 3)]
    assert judge_run(LIMIT, calls, skew_ms=0).holds


@pytest.mark.parametrize(
    ("ended_ms", "holds"),
    [(5, False), (50, True), (None, True)],
    ids=["certainly before", "perhaps in between", "nobody saw the end"],
)
def test_a_refund_that_overlaps_an_admission_counts_for_it(
    ended_ms: int | None, holds: bool
) -> None:
    calls = [correct(-5, 0, ended_ms), take(10, 10), take(5, 40)]
    assert judge_run(LIMIT, calls, skew_ms=0).holds is holds


@pytest.mark.parametrize(("began_ms", "holds"), [(1, False), (15, True)])
def test_a_late_charge_that_overlaps_an_admission_counts_as_debt(
    began_ms: int, holds: bool
) -> None:
    calls = [take(6, 0), correct(5, began_ms, 18), take(4, 10 if holds else 19, 19)]
    assert judge_run(LIMIT, calls, skew_ms=0).holds is holds


def test_a_call_that_is_answered_late_may_have_been_admitted_first() -> None:
    calls = [take(10, 0, 100), correct(-5, 15, 20), take(5, 30, 40), take(1, 120)]
    assert judge_run(LIMIT, calls, skew_ms=100).holds


def test_debt_after_the_last_admission_does_not_break_a_limit() -> None:
    assert judge_run(LIMIT, [take(10, 0), correct(50, 1, 2)], skew_ms=0).holds


@st.composite
def runs(draw: st.DrawFn) -> tuple[Limit, list[Movement]]:
    """Draw calls on a bucket that keeps its limits, each answered some time after."""
    limit = Limit("rps", draw(st.integers(1, 20)), draw(st.integers(1, 20)), 1)
    balance_milli, at_ms = Fraction(limit.capacity * MILLI), 0
    calls = []
    for _ in range(draw(st.integers(1, 40))):
        wait_ms = draw(st.sampled_from([0, 1, 7, 60, 400]))
        at_ms += wait_ms
        balance_milli = min(
            Fraction(limit.capacity * MILLI), balance_milli + wait_ms * limit.refill_amount
        )
        admitted = draw(st.booleans())
        amount_milli = draw(st.integers(1, 12)) * MILLI
        if admitted and amount_milli > balance_milli:
            continue
        if not admitted and draw(st.booleans()):
            amount_milli = -amount_milli
        balance_milli = min(Fraction(limit.capacity * MILLI), balance_milli - amount_milli)
        began_ms, ended_ms = (at_ms - draw(st.integers(0, 40)), at_ms + draw(st.integers(0, 40)))
        calls.append(Movement(began_ms, ended_ms, amount_milli, admitted))
    return limit, calls


@given(runs())
def test_the_check_never_blames_a_bucket_that_kept_its_limits(
    run: tuple[Limit, list[Movement]],
) -> None:
    limit, calls = run
    skew_ms = max((call.ended_ms or 0) - call.began_ms for call in calls) if calls else 0
    assert judge_run(limit, calls, skew_ms).holds
