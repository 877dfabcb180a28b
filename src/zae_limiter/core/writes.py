"""The five write paths as values.

    Create  put a new bucket; refused where there is one of its generation
    Take    take tokens within bounds, and leave the refill time alone
    Fill    take from a bucket that is full by now, whichever client used it last
    Refill  move a bucket from the image it was planned on to a newer one, as a delta
    Adjust  charge or give back, whatever the balance

A write to a shard names the generation that its client takes to be in force. An item of another
generation refuses it: the client looks for the item that holds the part now.

`core.apply` says what each write does to a bucket.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from .bucket import Bucket, Cell
from .rates import Rate
from .shards import RETIRED
from .validation import WCU


class Create(NamedTuple):
    """Put `bucket` where there is none, or only a remnant: a shard of another generation."""

    operation: str
    at_ms: int
    bucket: Bucket


class Take(NamedTuple):
    """Take tokens and leave the refill time as it is, within bounds that make that exact.

    Takings that leave the refill time alone commute, so their writers do not get into each
    other's way. The item must carry the fingerprint, the shard count and, if it is a shard, the
    generation that are given, and
      from, until  was last refilled in this time; an `until` of None is no bound,
      floor        holds at least this much of each limit that is charged,
      roof         holds at most this much of it, if the limit has a roof,
      unexpired    has not expired at `at_ms`, if that is asked for.

    A roof is what a limit could hold at `refilled_from_ms` without having come to its ceiling
    by `at_ms`. A full bucket gains nothing, and without the roof the next refill would credit
    the time that the bucket let pass while it was full.

    There are three cases:
      stored  Only stored tokens are taken: the floors are the amounts. A refill that lands
              meanwhile does no harm, so there is no `until`.
      gained  Tokens that were gained since the last refill are taken, too: the floors are
              the amounts less that gain. The last refill must be the one that was seen
              (`from` equals `until`), because a later one has added the gain already. The
              stored balance may fall below zero, by no more than the next refill adds.
      unseen  Stored tokens are taken from a bucket of which no image is known. It must be
              unexpired: a store may drop an expired item, and the charge with it.
    """

    operation: str
    at_ms: int
    fingerprint: str
    takes_milli: Mapping[str, int]
    acquires: int
    refilled_from_ms: int
    refilled_until_ms: int | None
    floors_milli: Mapping[str, int]
    roofs_milli: Mapping[str, int]
    shard_count: int = 1
    unexpired: bool = False
    generation: str = ""


class Refill(NamedTuple):
    """Go from `before` to `after`, as an optimistic lock.

    The item may have changed since `before` was read. The write adds and takes the difference
    of the two images, and applies only if
      rf     no other client has refilled, restamped, split or merged the item meanwhile,
      floor  every limit that is charged or lowered stays at zero or above,
      roof   no limit holds more than in `before`, so the ceiling still holds after,
      same   a limit that the write fills or forgets holds what it held in `before`: had it held
             less, less would have overflowed. So does each limit of an item that is merged.
    """

    operation: str
    at_ms: int
    before: Bucket
    after: Bucket


class Fill(NamedTuple):
    """Take from a bucket that is full by now, whichever client used it last.

    An item is full by now if it was last refilled at `refilled_by_ms` or before, and held at least
    the floor of each limit then: it has gained the rest since. So every limit begins anew at
    `at_ms`, with what the taking leaves of a full limit.
    """

    operation: str
    at_ms: int
    fingerprint: str
    takes_milli: Mapping[str, int]
    acquires: int
    refilled_by_ms: int
    floors_milli: Mapping[str, int]
    leaves_milli: Mapping[str, int]
    shard_count: int
    expires_at_s: int | None
    parent_id: str | None
    cascade: bool
    generation: str = ""


class Adjust(NamedTuple):
    """Charge (positive) or give back (negative), whatever the balance.

    A bucket or a limit that has gone was full, and a debt must not go with it:
      anew   is the bucket, charged, that the write makes where there is none; None makes none,
      rates  are the rates of limits that are charged. A limit that the bucket does not hold is
             made anew as a dormant limit; without its rate, its charge is dropped.

    `seen` is the last image that the caller knows. It does not change the effect. A store that
    needs the ceiling before it writes finds it there, without a read. The `generation` that a
    shard must have is refused otherwise; None is any.
    """

    operation: str
    at_ms: int
    deltas_milli: Mapping[str, int]
    acquires: int
    seen: Bucket | None = None
    anew: Bucket | None = None
    rates: Mapping[str, Rate] = MappingProxyType({})
    generation: str | None = None


Write = Create | Take | Fill | Refill | Adjust


# Not frozen, because a frozen outcome takes longer to make, and every write makes one.
@dataclass(slots=True)
class Granted:
    """The write was applied; this is the bucket after it."""

    bucket: Bucket


@dataclass(slots=True)
class Refused:
    """A condition of the write did not hold; this is the bucket, unchanged."""

    bucket: Bucket


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no bucket, and this write does not create one."""


Outcome = Granted | Refused | Absent
ABSENT = Absent()
UNSEEN = Bucket({}, 0, "")
"""The image of a bucket that was written and not seen since: it may have been deleted."""


class Guard(NamedTuple):
    """A guard says what one limit of the stored item must hold for a `Refill` to apply."""

    floor_milli: int | None
    roof_milli: int
    remainder: int

    def holds(self, cell: Cell) -> bool:
        """Return whether the cell is within the guard."""
        return (
            (self.floor_milli is None or cell.tokens_milli >= self.floor_milli)
            and cell.tokens_milli <= self.roof_milli
            and cell.remainder == self.remainder
        )


def guards(write: Refill) -> dict[str, Guard]:
    """Return the guards of the limits of `before`."""
    return {
        name: _guard(write, name, seen) for name, seen in write.before.cells.items() if name != WCU
    }


def _guard(write: Refill, name: str, seen: Cell) -> Guard:
    planned = write.after.cells.get(name)
    if planned is None:
        return Guard(seen.tokens_milli, seen.tokens_milli, seen.remainder)
    change_milli = planned.tokens_milli - seen.tokens_milli
    charge_milli = planned.consumed_milli - seen.consumed_milli
    lowered = change_milli < 0 and charge_milli <= 0
    splits = write.after.shard_count > write.before.shard_count
    merges = write.after.shard_count < write.before.shard_count
    retires = write.after.generation == RETIRED
    filled = planned.tokens_milli + charge_milli >= write.after.ceiling_milli(name)
    floor_milli = None
    if merges or retires or ((filled or lowered) and not splits):
        floor_milli = seen.tokens_milli
    elif charge_milli > 0 or (splits and lowered):
        floor_milli = -change_milli
    return Guard(floor_milli, seen.tokens_milli, seen.remainder)
