"""The bounds of refusals hold for a real bucket, whenever requests came in their windows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, target
from hypothesis import strategies as st

from zae_limiter import Limit
from zae_limiter.core.limit import MILLI
from zae_limiter.core.rates import Rate
from zae_limiter.core.refusal_bounds import RefusalBounds, UseWindow, refusal_bounds

HOUR = 3_600_000
Arrival = tuple[int, int]


def refusals(limit: Limit, arrivals: list[Arrival]) -> int:
    """Return how many requests a bucket refuses that begins full."""
    rate = Rate(
        limit.capacity * MILLI, limit.refill_amount * MILLI, limit.refill_period_seconds * MILLI
    )
    level, remainder, since, refused = rate.ceiling_milli, 0, arrivals[0][0], 0
    for at_ms, tokens in arrivals:
        level, remainder = rate.refill(level, remainder, since, at_ms)
        since = at_ms
        if level >= tokens * MILLI:
            level -= tokens * MILLI
        else:
            refused += 1
    return refused


@pytest.mark.parametrize(
    ("limit", "uses", "bounds"),
    [
        (Limit.per_minute("rpm", 10), [(600, 600)], (0, 590)),
        (Limit.per_minute("rpm", 10), [(700, 700)], (90, 690)),
        # Two crowds may meet where one hour ends and the next begins.
        (Limit.per_minute("rpm", 10), [(10, 10), (10, 10)], (0, 10)),
        (Limit.per_minute("rpm", 10), [(10, 10), (0, 0), (10, 10)], (0, 0)),
        (Limit.per_minute("rpm", 10), [(10, 10)] * 4, (0, 20)),
        (Limit.per_day("rpd", 240), [(10, 10)] * 25, (0, 0)),
        (Limit.per_day("rpd", 100), [(50, 50)] * 4, (84, 92)),
        # Requests that are larger than the capacity can never be admitted.
        (Limit.per_minute("tpm", 100), [(1000, 10)], (0, 9)),
        (Limit.per_minute("tpm", 100), [(1005, 10)], (0, 10)),
        (Limit.per_minute("tpm", 100), [(1010, 10)], (10, 10)),
        (Limit.per_minute("tpm", 100), [], (0, 0)),
    ],
)
def test_bounds_of_hours(limit: Limit, uses: list[Arrival], bounds: tuple[int, int]) -> None:
    windows = [
        UseWindow(n * HOUR, (n + 1) * HOUR, tokens, requests)
        for n, (tokens, requests) in enumerate(uses)
    ]
    assert refusal_bounds(limit, windows) == RefusalBounds(*bounds)
    assert refusal_bounds(limit, reversed(windows)) == RefusalBounds(*bounds)


@st.composite
def days(draw: st.DrawFn) -> tuple[Limit, list[UseWindow], list[Arrival]]:
    """Draw a limit, windows, and requests of equal size in each window, at any times in it."""
    limit = Limit("x", draw(st.integers(1, 20)), draw(st.integers(1, 20)), draw(st.integers(1, 30)))
    length = draw(st.sampled_from([1_000, 5_000, 60_000]))
    same_size = draw(st.none() | st.integers(1, 8))
    windows: list[UseWindow] = []
    arrivals: list[Arrival] = []
    for number in draw(st.lists(st.integers(0, 8), min_size=1, max_size=6, unique=True)):
        start = number * length
        requests = draw(st.integers(1, 12))
        size = same_size or draw(st.integers(1, 8))
        larger = 0 if same_size else draw(st.integers(0, requests - 1))
        windows.append(UseWindow(start, start + length, requests * size + larger, requests))
        edges = st.sampled_from([start, start + length - 1, start + length // 2])
        times = edges | st.integers(start, start + length - 1)
        for n in range(requests):
            arrivals.append((draw(times), size + (n < larger)))
    return limit, windows, sorted(arrivals, key=lambda a: a[0])


@settings(deadline=None, max_examples=150)
@given(days())
def test_a_real_bucket_refuses_no_fewer_and_no_more_than_the_bounds(
    drawn: tuple[Limit, list[UseWindow], list[Arrival]],
) -> None:
    limit, windows, arrivals = drawn
    bounds = refusal_bounds(limit, windows)
    refused = refusals(limit, arrivals)
    target(refused - bounds.most)
    assert bounds.least <= refused <= bounds.most


@settings(deadline=None, max_examples=50)
@given(
    st.builds(Limit, st.just("x"), *[st.integers(1, 20)] * 3), st.integers(1, 30), st.integers(1, 8)
)
def test_the_most_refusals_of_one_window_are_those_of_a_crowd(
    limit: Limit, requests: int, size: int
) -> None:
    window = UseWindow(0, HOUR, requests * size, requests)
    assert refusal_bounds(limit, [window]).most == refusals(limit, [(7, size)] * requests)


def test_the_least_refusals_are_those_of_an_even_stream() -> None:
    limit = Limit.per_minute("rpm", 10)
    evenly = [(n * HOUR // 700, 1) for n in range(1400)]
    windows = [UseWindow(n * HOUR, (n + 1) * HOUR, 700, 700) for n in range(2)]
    assert 0 <= refusals(limit, evenly) - refusal_bounds(limit, windows).least <= 1
