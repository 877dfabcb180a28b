"""Check what buckets let out against what they were allowed to: the window theorem.

In any interval that begins and ends with an admission, what a bucket let out, net of what
came back, is at most

    capacity + rate * (length of the interval + skew)

because at its begin the bucket held no more than its capacity, at its end it was not in
debt, and in between it gained no more than the rate. The skew is how far apart the clocks
of those who wrote may have been, the time included that an acquire takes: it is charged as of
when it was asked for.

Corrections count inside an interval, but none begins with one: an adjust may charge late
for what was used before.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import dropwhile, groupby
from typing import TypeVar

from ..core.limit import MILLI, Limit

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Event:
    """Tokens that moved out of a bucket (positive) or back into it (negative).

    `admitted`: the bucket had to cover it, as for `acquire` and `consume`; an adjust is
    carried out whatever the balance.
    """

    at_ms: int
    limit_name: str
    amount_milli: int
    admitted: bool

    @property
    def is_admission(self) -> bool:
        """True when it took something and was let through; asking nothing is always let."""
        return self.admitted and self.amount_milli > 0


@dataclass(frozen=True, slots=True)
class Window:
    """An interval, what it let out, and how far that is beyond its bound (or short of it)."""

    start_ms: int
    end_ms: int
    taken_milli: int
    excess_milli: Fraction


def window_excess(
    events: Iterable[Event],
    *,
    capacity_milli: int,
    refill_amount_milli: int,
    refill_period_ms: int,
    skew_ms: int = 0,
) -> Fraction:
    """By how many millitokens the worst interval goes beyond its bound; the theorem holds
    when that is not above zero.

    The events are those of one limit of one bucket, in any order; where times are equal,
    the order given counts.
    """
    window = worst_window(
        events,
        capacity_milli=capacity_milli,
        refill_amount_milli=refill_amount_milli,
        refill_period_ms=refill_period_ms,
        skew_ms=skew_ms,
    )
    return window.excess_milli


def worst_window(
    events: Iterable[Event],
    *,
    capacity_milli: int,
    refill_amount_milli: int,
    refill_period_ms: int,
    skew_ms: int = 0,
) -> Window:
    """The interval that goes furthest beyond its bound, or comes closest to it.

    One pass: the worst interval that ends here either goes on from the worst one that
    ended before, or begins here. Amounts are multiplied by the period to stay integers.
    """
    ordered = sorted(events, key=lambda event: event.at_ms)
    since_admission = dropwhile(lambda event: not event.is_admission, ordered)
    allowed = capacity_milli * refill_period_ms + refill_amount_milli * skew_ms
    worst_level, worst = 0, (0, 0, 0)
    level, taken_milli = 0, 0
    start_ms = end_ms = ordered[0].at_ms if ordered else 0
    for event in since_admission:
        level -= refill_amount_milli * (event.at_ms - end_ms)
        end_ms = event.at_ms
        if event.is_admission and level <= 0:
            level, start_ms, taken_milli = 0, event.at_ms, 0
        level += event.amount_milli * refill_period_ms
        taken_milli += event.amount_milli
        if event.is_admission and level > worst_level:
            worst_level, worst = level, (start_ms, end_ms, taken_milli)
    return Window(*worst, Fraction(worst_level - allowed, refill_period_ms))


def assert_window_theorem(
    histories: Mapping[K, Iterable[Event]], limits: Iterable[Limit], *, skew_ms: int = 0
) -> None:
    """Raise `AssertionError` for the first limit of a bucket that let out too much.

    `histories` holds the events of each bucket, under whatever names it. All shards of a
    bucket are one history; where there are several, leave out what adjusts charged, because
    acquires that are under way while a debt is spread over the shards may pass.
    """
    by_name = {limit.name: limit for limit in limits}
    for bucket, events in histories.items():
        by_limit = sorted(events, key=lambda event: event.limit_name)
        for name, movements in groupby(by_limit, key=lambda event: event.limit_name):
            _assert_limit(bucket, by_name[name], list(movements), skew_ms)


def _assert_limit(bucket: Hashable, limit: Limit, events: list[Event], skew_ms: int) -> None:
    window = worst_window(
        events,
        capacity_milli=limit.capacity * MILLI,
        refill_amount_milli=limit.refill_amount * MILLI,
        refill_period_ms=limit.refill_period_seconds * 1000,
        skew_ms=skew_ms,
    )
    if window.excess_milli > 0:
        raise AssertionError(
            f"Bucket {bucket} let out {window.taken_milli} millitokens of {limit.name} from"
            f" {window.start_ms} ms to {window.end_ms} ms,"
            f" {float(window.excess_milli):.3f} more than {limit} allows"
            f" with a skew of {skew_ms} ms"
        )
