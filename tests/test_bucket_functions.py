from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import limits, quick
from zae_limiter.bucket import (
    build_limit_status,
    calculate_available,
    calculate_retry_after,
    force_consume,
    refill_bucket,
    try_consume,
    would_refill_satisfy,
)
from zae_limiter.core.limit import BucketState, Limit
from zae_limiter.core.models import LimitStatus

START_MS = 1_000_000
RPM = Limit.per_minute("rpm", 60)
BURSTY = Limit.per_minute("rpm", 60, burst=90)
SLOW = Limit.custom("slow", 2, 1, 7)


def state_of(limit: Limit, tokens_milli: int | None = None) -> BucketState:
    state = BucketState.from_limit("key", "gpt-4", limit, START_MS)
    return state if tokens_milli is None else replace(state, tokens_milli=tokens_milli)


# When (since the start), how many tokens, whether they were there, what was left.
Tape = list[tuple[int, int, bool, int]]

TAPES: dict[str, tuple[Limit, Tape]] = {
    "a bucket starts full and refills by the millisecond": (
        RPM,
        [
            (0, 60, True, 0),
            (0, 1, False, 0),
            (999, 1, False, 999),
            (1000, 1, True, 0),
            (3500, 2, True, 500),
            (4000, 1, True, 0),
        ],
    ),
    "it holds no more than its capacity": (
        RPM,
        [(0, 10, True, 50_000), (10**9, 60, True, 0), (10**9, 1, False, 0)],
    ),
    "a burst may be larger than the rate": (
        BURSTY,
        [(0, 90, True, 0), (59_999, 60, False, 59_999), (60_000, 60, True, 0)],
    ),
    "nothing is gained while the clock is behind": (
        RPM,
        [
            (5000, 60, True, 0),
            (2000, 1, False, 0),
            (5999, 1, False, 999),
            (0, 1, False, 999),
            (6000, 1, True, 0),
            (-1000, 0, True, 0),
        ],
    ),
    "small steps add up": (
        SLOW,
        [(0, 2, True, 0), (3, 0, True, 0), (7, 0, True, 1), (10, 0, True, 1), (14, 0, True, 2)],
    ),
    "asking for nothing is always granted": (RPM, [(0, 60, True, 0), (0, 0, True, 0)]),
    "more than the capacity is never there": (RPM, [(0, 61, False, 60_000)]),
}


@pytest.mark.parametrize(("limit", "tape"), TAPES.values(), ids=TAPES.keys())
def test_tapes(limit: Limit, tape: Tape) -> None:
    state = state_of(limit)
    for at_ms, amount, ok, left_milli in tape:
        result = try_consume(state, amount, START_MS + at_ms)
        assert (result.success, result.new_tokens_milli) == (ok, left_milli), at_ms
        state = replace(
            state,
            tokens_milli=result.new_tokens_milli,
            last_refill_ms=result.new_last_refill_ms,
        )


class TestRefill:
    @quick
    @given(limits(), st.integers(-10_000_000, 10_000_000), st.integers(1, 10**8))
    def test_follows_the_documented_formulas(
        self, limit: Limit, tokens_milli: int, elapsed_ms: int
    ) -> None:
        capacity, amount = limit.capacity * 1000, limit.refill_amount * 1000
        period_ms = limit.refill_period_seconds * 1000
        result = refill_bucket(
            tokens_milli, START_MS, START_MS + elapsed_ms, capacity, amount, period_ms
        )
        tokens_to_add = (elapsed_ms * amount) // period_ms
        time_used_ms = (tokens_to_add * period_ms) // amount
        assert result == (min(capacity, tokens_milli + tokens_to_add), START_MS + time_used_ms)

    @quick
    @given(limits(), st.integers(-(10**6), 0))
    def test_time_that_stands_still_or_goes_back_changes_nothing(
        self, limit: Limit, elapsed_ms: int
    ) -> None:
        capacity, amount = limit.capacity * 1000, limit.refill_amount * 1000
        period_ms = limit.refill_period_seconds * 1000
        now_ms = START_MS + elapsed_ms
        assert refill_bucket(-5, START_MS, now_ms, capacity, amount, period_ms) == (-5, START_MS)

    def test_time_too_short_for_a_millitoken_is_kept(self) -> None:
        assert refill_bucket(0, START_MS, START_MS + 6, 10_000, 1000, 7000) == (0, START_MS)
        assert refill_bucket(0, START_MS, START_MS + 7, 10_000, 1000, 7000) == (1, START_MS + 7)

    def test_only_the_time_of_whole_millitokens_is_used(self) -> None:
        assert refill_bucket(0, START_MS, START_MS + 20, 10_000, 1000, 7000) == (2, START_MS + 14)

    @quick
    @given(limits(max_amount=50), st.lists(st.integers(0, 300), max_size=30))
    def test_compensated_time_loses_no_more_than_a_millitoken(
        self, limit: Limit, steps_ms: list[int]
    ) -> None:
        capacity, amount = 10**12, limit.refill_amount * 1000
        period_ms = limit.refill_period_seconds * 1000
        tokens_milli, refilled_ms, now_ms = 0, START_MS, START_MS
        for step_ms in steps_ms:
            now_ms += step_ms
            tokens_milli, refilled_ms = refill_bucket(
                tokens_milli, refilled_ms, now_ms, capacity, amount, period_ms
            )
        assert tokens_milli >= (now_ms - START_MS) * amount // period_ms - 1

    def test_tokens_above_the_capacity_are_cut_even_when_no_time_has_passed(self) -> None:
        assert refill_bucket(99, START_MS, START_MS, 50, 1000, 1000) == (50, START_MS)


class TestTryConsume:
    def test_tells_what_was_there_and_when_to_come_back(self) -> None:
        result = try_consume(state_of(RPM, 1500), 3, START_MS)
        assert result == (False, 1500, START_MS, 1, 1.501)

    def test_takes_what_is_there(self) -> None:
        result = try_consume(state_of(RPM, 1500), 3, START_MS + 2000)
        assert result == (True, 500, START_MS + 2000, 3, 0.0)

    def test_a_bucket_in_debt_must_be_repaid_first(self) -> None:
        result = try_consume(state_of(RPM, -1500), 1, START_MS + 1000)
        assert result == (False, -500, START_MS + 1000, -1, 1.501)

    def test_changes_nothing_that_was_passed_in(self) -> None:
        state = state_of(RPM)
        try_consume(state, 1, START_MS + 1)
        assert state == state_of(RPM)


class TestForceConsume:
    def test_goes_below_zero(self) -> None:
        assert force_consume(state_of(RPM, 500), 2, START_MS) == (-1500, START_MS)

    def test_refills_first(self) -> None:
        assert force_consume(state_of(RPM, 0), 1, START_MS + 3000) == (2000, START_MS + 3000)

    def test_a_negative_amount_gives_back(self) -> None:
        assert force_consume(state_of(RPM, 500), -2, START_MS) == (2500, START_MS)


class TestRetryAfter:
    @pytest.mark.parametrize(
        ("deficit_milli", "amount_milli", "period_ms", "seconds"),
        [
            (0, 1000, 1000, 0.0),
            (-5, 1000, 1000, 0.0),
            (1000, 1000, 1000, 1.001),
            (1, 1000, 1000, 0.002),
            (1, 60_000, 60_000, 0.002),
            (1500, 1_000_000, 60_000, 0.091),
            (100_000, 100_000, 86_400_000, 86_400.001),
        ],
    )
    def test_table(
        self, deficit_milli: int, amount_milli: int, period_ms: int, seconds: float
    ) -> None:
        assert calculate_retry_after(deficit_milli, amount_milli, period_ms) == seconds

    @quick
    @given(limits(), st.integers(0, 10_000), st.integers(-10_000_000, 10_000_000))
    def test_waiting_that_long_is_enough_and_two_milliseconds_less_is_not(
        self, limit: Limit, tokens: int, tokens_milli: int
    ) -> None:
        wanted = min(tokens, limit.capacity)
        state = state_of(limit, min(tokens_milli, limit.capacity * 1000))
        refused = try_consume(state, wanted, START_MS)
        wait_ms = round(refused.retry_after_seconds * 1000)
        assert try_consume(state, wanted, START_MS + wait_ms).success
        if not refused.success:
            assert not try_consume(state, wanted, START_MS + wait_ms - 2).success


@pytest.mark.parametrize(
    ("tokens_milli", "later_ms", "available"),
    [
        (60_000, 0, 60),
        (999, 0, 0),
        (999, 1, 1),
        (-1, 0, -1),
        (-1500, 0, -2),
        (0, 10**9, 60),
        (0, -99, 0),
    ],
)
def test_available_counts_whole_tokens(tokens_milli: int, later_ms: int, available: int) -> None:
    assert calculate_available(state_of(RPM, tokens_milli), START_MS + later_ms) == available


def test_a_status_says_how_a_limit_stands_towards_a_request() -> None:
    short = build_limit_status("key", "gpt-4", RPM, state_of(RPM, 1000), 3, START_MS)
    assert short == LimitStatus("key", "gpt-4", "rpm", RPM, 1, 3, True, 2.001)
    fine = build_limit_status("key", "gpt-4", RPM, state_of(RPM, 1000), 1, START_MS)
    assert fine == LimitStatus("key", "gpt-4", "rpm", RPM, 1, 1, False, 0.0)


class TestWouldRefillSatisfy:
    STATES = [state_of(RPM, 0), state_of(Limit.per_minute("tpm", 600), 0)]

    def test_tells_whether_every_limit_would_cover_its_part(self) -> None:
        asked = {"rpm": 1, "tpm": 20}
        enough, statuses = would_refill_satisfy(self.STATES, asked, START_MS + 2000)
        assert enough
        assert [(s.limit_name, s.available, s.exceeded) for s in statuses] == [
            ("rpm", 2, False),
            ("tpm", 20, False),
        ]

    def test_one_limit_that_would_not_is_enough_to_refuse(self) -> None:
        asked = {"rpm": 1, "tpm": 21}
        enough, statuses = would_refill_satisfy(self.STATES, asked, START_MS + 2000)
        assert not enough
        assert [status.exceeded for status in statuses] == [False, True]

    def test_limits_of_which_nothing_is_asked_do_not_count(self) -> None:
        states = [state_of(RPM, -9000), *self.STATES[1:]]
        enough, statuses = would_refill_satisfy(states, {"rpm": 0, "tpm": 1}, START_MS + 2000)
        assert enough
        assert [status.limit_name for status in statuses] == ["tpm"]
