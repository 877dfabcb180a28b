"""The write paths as values, and what each does to a bucket: the reference semantics.

    Create     put a new bucket; refused when there is one
    Refill     move a bucket from the image it was planned on to a newer one, as a delta
    Fill       take from a bucket that is full by now, whoever used it last
    Drain      take tokens that are there, without refilling
    Borrow     take tokens that have been gained by now, without refilling
    Adjust     charge or give back, whatever the balance; never creates a bucket
    Speculate  take tokens that are there, if the bucket carries the limits the caller knows

`apply` is what every store must agree with. Each write carries the id of its operation;
a bucket remembers the last few, so a write that is sent again because its answer was
lost changes nothing and is answered as it was the first time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from .composite import REMEMBERED_OPERATIONS, Bucket, Cell, credit, renewed, take
from .naming import WCU


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


def apply(write: Write, bucket: Bucket | None) -> Outcome:
    """What this write does to this bucket. Changes nothing itself."""
    if bucket is None:
        return Granted(_remember(write, write.bucket)) if isinstance(write, Create) else ABSENT
    if write.operation in bucket.recent:
        return Granted(bucket)
    match write:
        case Speculate():
            if bucket.is_expired(write.at_ms) or not _covers(write, bucket):
                return Refused(bucket)
            return _taken(write, bucket)
        case Drain():
            return _taken(write, bucket) if _covers(write, bucket) else Refused(bucket)
        case Borrow():
            return _taken(write, bucket) if _covers_by_then(write, bucket) else Refused(bucket)
        case Refill():
            if bucket == write.before:
                return Granted(_remember(write, write.after))
            if not _still_planned_for(write, bucket):
                return Refused(bucket)
            return Granted(_remember(write, _moved(write, bucket)))
        case Fill():
            if not _is_full_by_then(write, bucket):
                return Refused(bucket)
            return Granted(_filled(write, bucket))
        case Adjust():
            return Granted(_remember(write, _adjusted(write, bucket)))
        case Create():
            return Refused(bucket)
        case _:
            assert_never(write)


def _covers(write: Speculate | Drain, bucket: Bucket) -> bool:
    if (
        write.fingerprint != bucket.fingerprint
        or write.shard_count != bucket.shard_count
        or write.refilled_since_ms > bucket.refilled_at_ms
    ):
        return False
    cells, roofs_milli = bucket.cells, write.roofs_milli
    for name, amount_milli in write.takes_milli.items():
        tokens_milli = cells[name].tokens_milli
        if amount_milli and not amount_milli <= tokens_milli <= roofs_milli.get(name, tokens_milli):
            return False
    return True


def _covers_by_then(write: Borrow, bucket: Bucket) -> bool:
    if (
        write.fingerprint != bucket.fingerprint
        or write.shard_count != bucket.shard_count
        or write.refilled_at_ms != bucket.refilled_at_ms
    ):
        return False
    cells, roofs_milli = bucket.cells, write.roofs_milli
    for name, floor_milli in write.floors_milli.items():
        tokens_milli = cells[name].tokens_milli
        if not floor_milli <= tokens_milli <= roofs_milli.get(name, tokens_milli):
            return False
    return True


def _taken(write: Speculate | Drain | Borrow, bucket: Bucket) -> Granted:
    return Granted(take(bucket, write.takes_milli, write.acquires, _recent(write, bucket)))


def _recent(write: Write, bucket: Bucket) -> tuple[str, ...]:
    return (write.operation, *bucket.recent[: REMEMBERED_OPERATIONS - 1])


def _remember(write: Write, bucket: Bucket) -> Bucket:
    return renewed(bucket, bucket.cells, recent=_recent(write, bucket))


def _still_planned_for(write: Refill, bucket: Bucket) -> bool:
    before = write.before
    return (
        bucket.refilled_at_ms == before.refilled_at_ms
        and bucket.fingerprint == before.fingerprint
        and bucket.shard_count == before.shard_count
        and bucket.dormant == before.dormant
        and all(guard.holds(bucket.cells[name]) for name, guard in guards(write).items())
    )


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


def _moved(write: Refill, bucket: Bucket) -> Bucket:
    before, after = write.before, write.after
    cells = dict(after.cells)
    for name, planned in after.cells.items():
        seen = before.cells.get(name)
        if seen is not None:
            now = bucket.cells[name]
            cells[name] = planned._replace(
                tokens_milli=now.tokens_milli + planned.tokens_milli - seen.tokens_milli,
                consumed_milli=now.consumed_milli + planned.consumed_milli - seen.consumed_milli,
            )
    # Where it means to change nothing, what others have changed meanwhile stays.
    return bucket._replace(
        cells=cells,
        refilled_at_ms=after.refilled_at_ms,
        fingerprint=after.fingerprint,
        acquires=bucket.acquires + after.acquires - before.acquires,
        shard_count=after.shard_count,
        dormant=after.dormant,
        **{field: getattr(after, field) for field in _changed(before, after)},
    )


def _changed(before: Bucket, after: Bucket) -> list[str]:
    """What is said otherwise of lifetime and owner."""
    fields = ("expires_at_s", "parent_id", "cascade")
    return [field for field in fields if getattr(before, field) != getattr(after, field)]


def _is_full_by_then(write: Fill, bucket: Bucket) -> bool:
    if (
        bucket.fingerprint != write.fingerprint
        or bucket.shard_count != write.shard_count
        or bucket.dormant
        or bucket.refilled_at_ms > write.refilled_by_ms
    ):
        return False
    cells = bucket.cells
    for name, floor_milli in write.floors_milli.items():
        if name not in cells or cells[name].tokens_milli < floor_milli:
            return False
    return True


def _filled(write: Fill, bucket: Bucket) -> Bucket:
    cells = dict(bucket.cells)
    for name, tokens_milli in write.leaves_milli.items():
        _, capacity, amount, period, consumed, _ = cells[name]
        taken_milli = write.takes_milli.get(name, 0)
        cells[name] = Cell(tokens_milli, capacity, amount, period, consumed + taken_milli)
    return Bucket(
        cells,
        write.at_ms,
        bucket.fingerprint,
        _recent(write, bucket),
        bucket.acquires + write.acquires,
        write.expires_at_s,
        bucket.shard,
        bucket.shard_count,
        write.parent_id,
        write.cascade,
    )


def _adjusted(write: Adjust, bucket: Bucket) -> Bucket:
    known = {name: d for name, d in write.deltas_milli.items() if name in bucket.cells}
    charges = {name: delta for name, delta in known.items() if delta > 0}
    charged = take(bucket, charges, write.acquires)
    credited = {name: credit(charged, name, -delta) for name, delta in known.items() if delta < 0}
    return charged._replace(cells={**charged.cells, **credited})
