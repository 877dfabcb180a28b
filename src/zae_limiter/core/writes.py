"""The write paths as values.

    Create     put a new bucket; refused when there is one
    Refill     move a bucket from the image it was planned on to a newer one, as a delta
    Fill       take from a bucket that is full by now, whoever used it last
    Drain      take tokens that are there, without refilling
    Borrow     take tokens that have been gained by now, without refilling
    Adjust     charge or give back, whatever the balance; never creates a bucket
    Speculate  take tokens that are there, if the bucket carries the limits the caller knows

`core.apply` says what each write does to a bucket.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .bucket import Bucket, Cell
from .validation import WCU


class Create(NamedTuple):
    """Put `bucket` where there is none."""

    operation: str
    at_ms: int
    bucket: Bucket


class Refill(NamedTuple):
    """Go from `before` to `after`.

    The item may have changed since `before` was read. What the write adds and takes is
    the difference of the two images, and it applies only if
      rf     nobody else has refilled or restamped the item meanwhile,
      floor  every limit that is charged or lowered stays at zero or above,
      roof   no limit holds more than `before` did, so the ceiling still holds after,
      same   a limit that it fills or forgets holds what `before` did: of less, less would
             have overflowed.
    """

    operation: str
    at_ms: int
    before: Bucket
    after: Bucket


class Fill(NamedTuple):
    """Take from a bucket that is full by now, without having seen who used it last.

    That is known of an item if its last refill was of `refilled_by_ms` or before, and each limit
    held at least its floor then: the rest it has gained since. So every limit begins anew at
    `at_ms`, with what the taking leaves of a full one.
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


class Drain(NamedTuple):
    """Take from the balances as they are stored, and leave the refill time as it is.

    That is exact only for a limit that has not been full since the last refill: a full
    bucket gains nothing, and the time it let pass must not be credited after the taking.
    So the last refill must be of `refilled_since_ms` or later, and each limit may hold at
    most its roof: what it could hold then without having come to its ceiling by now.
    """

    operation: str
    at_ms: int
    fingerprint: str
    takes_milli: Mapping[str, int]
    acquires: int
    refilled_since_ms: int
    roofs_milli: Mapping[str, int]
    shard_count: int = 1


class Borrow(NamedTuple):
    """Take what has been gained since the last refill, too, and leave the refill time as it is.

    So those who take at the same time do not get into each other's way. The balance is stored
    as what is left of it, less what will have been gained once it is refilled: it may be below
    zero. The last refill must be the one that was seen, each limit must hold at least its
    floor, what is taken less what it gained since, and at most its roof, as for `Drain`.
    """

    operation: str
    at_ms: int
    fingerprint: str
    takes_milli: Mapping[str, int]
    acquires: int
    refilled_at_ms: int
    floors_milli: Mapping[str, int]
    roofs_milli: Mapping[str, int]
    shard_count: int = 1


class Adjust(NamedTuple):
    """Charge (positive) or give back (negative) at an existing bucket.

    `seen` is the last image the caller knows. It changes nothing here; it tells a store that
    has to ask for the ceiling beforehand where it was.
    """

    operation: str
    at_ms: int
    deltas_milli: Mapping[str, int]
    acquires: int
    seen: Bucket | None = None


class Speculate(NamedTuple):
    """Like `Drain`, sent without having seen the bucket: it must not be about to expire."""

    operation: str
    at_ms: int
    fingerprint: str
    takes_milli: Mapping[str, int]
    acquires: int
    refilled_since_ms: int
    roofs_milli: Mapping[str, int]
    shard_count: int = 1


Write = Create | Refill | Fill | Drain | Borrow | Adjust | Speculate


# Nobody changes an outcome. But to freeze it makes it slower to make, and every write has one.
@dataclass(slots=True)
class Granted:
    """The write applied; this is the bucket after it."""

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


class Guard(NamedTuple):
    """What one limit of the stored item must hold for a `Refill` to apply."""

    floor_milli: int | None
    roof_milli: int
    remainder: int

    def holds(self, cell: Cell) -> bool:
        """Whether it does."""
        return (
            (self.floor_milli is None or cell.tokens_milli >= self.floor_milli)
            and cell.tokens_milli <= self.roof_milli
            and cell.remainder == self.remainder
        )


def guards(write: Refill) -> dict[str, Guard]:
    """The guards of the limits that were there before."""
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
    splits = write.after.shard_count != write.before.shard_count
    filled = planned.tokens_milli + charge_milli >= write.after.ceiling_milli(name)
    floor_milli = None
    if (filled or lowered) and not splits:
        floor_milli = seen.tokens_milli
    elif charge_milli > 0 or (splits and lowered):
        floor_milli = -change_milli
    return Guard(floor_milli, seen.tokens_milli, seen.remainder)
