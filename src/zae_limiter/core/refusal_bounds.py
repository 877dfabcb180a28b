"""Bounds of how many requests a limit would have refused, of which only totals are known.

A usage window tells how much was used in it, and in how many requests, but not when. So the answer
has two bounds, for requests of equal size in each window:

    least   the use is spread evenly over each window: the bucket admits as much as it ever can
    most    the use of each window comes all at once, at its beginning or at its end, whichever
            lets the bucket gain least before it: two neighbours then come together

A bucket begins full. Amounts are in millitokens, times in milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .limit import MILLI, Limit
from .rates import Rate

# A bucket's possible states after a window are few: most of them are full, or empty, again.
_MAX_STATES = 64


class UseWindow(NamedTuple):
    """The use of one limit in one window. The window ends before `end_ms`."""

    start_ms: int
    end_ms: int
    tokens: int
    requests: int


class RefusalBounds(NamedTuple):
    """The number of requests that a limit would have refused, at least and at most."""

    least: int
    most: int


def refusal_bounds(limit: Limit, windows: Iterable[UseWindow]) -> RefusalBounds:
    """Return the bounds for windows that do not overlap, in any order."""
    used = sorted(window for window in windows if window.tokens > 0)
    if not used:
        return RefusalBounds(0, 0)
    rate = Rate(
        limit.capacity * MILLI, limit.refill_amount * MILLI, limit.refill_period_seconds * MILLI
    )
    return RefusalBounds(_least(rate, used), _most(rate, used))


def _least(rate: Rate, windows: Sequence[UseWindow]) -> int:
    """Return the refusals of an even stream: it takes whatever the bucket gains, so that only the
    totals of windows count. Each token that is refused in one window saves one for later at best.
    """
    refused, missing_milli, largest_milli = 0, 0, MILLI
    level_milli, since_ms = rate.ceiling_milli, windows[0].start_ms
    for window in windows:
        if window.tokens // window.requests * MILLI > rate.ceiling_milli:
            refused += window.requests
            continue
        gained_milli = rate.most_gain_milli(since_ms, window.start_ms)
        level_milli = min(rate.ceiling_milli, level_milli + gained_milli)
        level_milli += rate.most_gain_milli(window.start_ms, window.end_ms)
        level_milli -= window.tokens * MILLI
        missing_milli += max(0, -level_milli)
        level_milli = min(rate.ceiling_milli, max(0, level_milli))
        largest_milli = max(largest_milli, _size_milli(window))
        since_ms = window.end_ms
    return refused - (-missing_milli // largest_milli)


def _size_milli(window: UseWindow) -> int:
    """Return the size of the window's largest request."""
    return -(-window.tokens // window.requests) * MILLI


class _Crowd(NamedTuple):
    """A state of the bucket after the requests of a window came all at once, and how many requests
    it has refused so far."""

    at_ms: int
    refused: int
    level_milli: int


def _most(rate: Rate, windows: Sequence[UseWindow]) -> int:
    """Return the refusals of the worst sequence of crowds, one at an edge of each window."""
    states = [_Crowd(windows[0].start_ms, 0, rate.ceiling_milli)]
    for window in windows:
        edges = {window.start_ms, window.end_ms - 1}
        states = _worst([_after(rate, s, window, at_ms) for s in states for at_ms in edges])
    return max(state.refused for state in states)


def _after(rate: Rate, before: _Crowd, window: UseWindow, at_ms: int) -> _Crowd:
    gained_milli = rate.least_gain_milli(before.at_ms, at_ms)
    level_milli = min(rate.ceiling_milli, before.level_milli + gained_milli)
    size_milli = _size_milli(window)
    admitted = min(window.requests, level_milli // size_milli)
    refused = before.refused + window.requests - admitted
    if admitted == window.requests:
        left_milli = max(0, level_milli - window.tokens * MILLI)
    elif window.tokens % window.requests:
        # Requests of two sizes: the smaller ones may take what the larger ones leave.
        left_milli = 0
    else:
        left_milli = level_milli - admitted * size_milli
    return _Crowd(at_ms, refused, left_milli)


def _worst(states: Sequence[_Crowd]) -> list[_Crowd]:
    """Leave out states that another one surpasses: as late, with no fewer refusals and no more
    left in the bucket."""
    kept: list[_Crowd] = []
    for state in sorted(states, key=lambda s: (s.at_ms, -s.refused, s.level_milli)):
        rivals = [other for other in kept if other.at_ms == state.at_ms]
        if all(other.level_milli > state.level_milli for other in rivals):
            kept.append(state)
    if len(kept) <= _MAX_STATES:
        return kept
    times = {state.at_ms for state in kept}
    return [_pooled([state for state in kept if state.at_ms == at_ms]) for at_ms in times]


def _pooled(states: Sequence[_Crowd]) -> _Crowd:
    """Return a state that is worse than all of these."""
    refused = max(state.refused for state in states)
    return _Crowd(states[0].at_ms, refused, min(state.level_milli for state in states))
