"""This module checks whether a bucket kept its limits, as far as its callers can tell.

A caller knows when it called and when the answer came, not when in between the store acted. So a
taking counts when the answer came, and the longest call is allowed as skew. An admission that
overlaps a correction might have come before or after it: it counts, but no interval begins or ends
with it, so that the place of a correction within its call does not matter.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from ...core.limit import MILLI, Limit
from ...testing.history import Event, Window, worst_window
from .record import Movement


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict covers one limit of one bucket: the whole run, and the interval closest to its
    bound."""

    limit: Limit
    whole: Window
    worst: Window

    @property
    def holds(self) -> bool:
        """Whether no interval let out more than capacity + rate x time."""
        return self.whole.excess_milli <= 0 and self.worst.excess_milli <= 0


def judge_run(limit: Limit, movements: Sequence[Movement], skew_ms: int) -> Verdict:
    """Check every interval of a run."""
    events = sorted(_events(limit.name, movements), key=lambda event: event.at_ms)
    worst = worst_window(
        events,
        capacity_milli=limit.capacity * MILLI,
        refill_amount_milli=limit.refill_amount * MILLI,
        refill_period_ms=limit.refill_period_seconds * 1000,
        skew_ms=skew_ms,
    )
    return Verdict(limit, _whole(limit, events, skew_ms), worst)


def _events(limit_name: str, movements: Sequence[Movement]) -> list[Event]:
    takes = sorted((m for m in movements if m.admitted), key=_end)
    corrections = [m for m in movements if not m.admitted]
    clear = _Clearance(takes, corrections)
    return [
        *(
            Event(_end(m), limit_name, m.amount_milli, clear.of(place))
            for place, m in enumerate(takes)
        ),
        *(Event(m.began_ms, limit_name, m.amount_milli, admitted=False) for m in corrections),
    ]


def _end(movement: Movement) -> int:
    assert movement.ended_ms is not None
    return movement.ended_ms


class _Clearance:
    """A clearance tells which admissions were certainly before or after each correction."""

    def __init__(self, takes: Sequence[Movement], corrections: Sequence[Movement]) -> None:
        self._takes = takes
        # A call that was answered later may have been carried out earlier: without the minimum, an
        # admission that overlaps a correction would count as clear of it.
        self._earliest_ms = list(accumulate((m.began_ms for m in reversed(takes)), min))[::-1]
        by_begin = sorted(corrections, key=lambda m: m.began_ms)
        ends_ms = (float("inf") if m.ended_ms is None else m.ended_ms for m in by_begin)
        self._begins_ms = [m.began_ms for m in by_begin]
        self._latest_ends_ms = list(accumulate(ends_ms, max))

    def of(self, place: int) -> bool:
        """Return whether no correction was under way while this admission may have happened."""
        begun = bisect_right(self._begins_ms, _end(self._takes[place]))
        return begun == 0 or self._latest_ends_ms[begun - 1] < self._earliest_ms[place]


def _whole(limit: Limit, events: Sequence[Event], skew_ms: int) -> Window:
    """Return the window from the start to the last admission: after it, an adjust may have gone
    into debt."""
    last = max((place for place, event in enumerate(events) if event.is_admission), default=-1)
    counted = events[: last + 1]
    start_ms, end_ms = (counted[0].at_ms, counted[-1].at_ms) if counted else (0, 0)
    taken_milli = sum(event.amount_milli for event in counted)
    gained = Fraction(limit.refill_amount * MILLI, limit.refill_period_seconds * 1000)
    allowed_milli = limit.capacity * MILLI + gained * (end_ms - start_ms + skew_ms)
    return Window(start_ms, end_ms, taken_milli, taken_milli - allowed_milli)
