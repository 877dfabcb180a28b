"""The reference semantics: what each write does to a bucket.

Every store must agree with `apply`. Each write carries the id of its operation; a bucket
remembers the last few, so a write that is sent again because its answer was lost changes
nothing and is answered as it was the first time. A write that was planned before the bucket's fence
is refused (`core.idempotency`).
"""

from __future__ import annotations

from typing import assert_never

from .bucket import REMEMBERED_OPERATIONS, Bucket, Cell, credit, evolve, owing, take_tokens
from .idempotency import fence_at
from .writes import (
    ABSENT,
    Adjust,
    Create,
    Fill,
    Granted,
    Outcome,
    Refill,
    Refused,
    Take,
    Write,
    guards,
)


def apply(write: Write, bucket: Bucket | None) -> Outcome:
    """Return what a write does to a bucket. Neither of the two is changed."""
    if bucket is None:
        made = _made(write)
        return ABSENT if made is None else Granted(_remember(write, made))
    if write.operation in bucket.recent:
        return Granted(bucket)
    if isinstance(write, Create) and _is_remnant(bucket, write.bucket):
        return Granted(_remember(write, created(write)))
    if write.operation < bucket.fence:
        return Refused(bucket)
    match write:
        case Take():
            return _taken(write, bucket) if _is_within(write, bucket) else Refused(bucket)
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
            if write.generation not in (None, bucket.generation):
                return Refused(bucket)
            return Granted(_remember(write, adjusted(write, bucket)))
        case Create():
            return Refused(bucket)
        case _:
            assert_never(write)


def _is_remnant(bucket: Bucket, made: Bucket) -> bool:
    """Return whether a new item may take the place of this one."""
    return bucket.shard > 0 and bucket.generation != made.generation


def _made(write: Write) -> Bucket | None:
    """Return the bucket that a write puts where there is none."""
    match write:
        case Create():
            return created(write)
        case Adjust():
            return write.anew
        case _:
            return None


def created(write: Create) -> Bucket:
    """Return a new bucket. Writes that were planned for an earlier one are behind its fence."""
    bucket = write.bucket
    return bucket._replace(fence=max(bucket.fence, fence_at(write.at_ms)))


def _is_within(write: Take, bucket: Bucket) -> bool:
    refilled_at_ms, until_ms = bucket.refilled_at_ms, write.refilled_until_ms
    if (
        write.fingerprint != bucket.fingerprint
        or write.shard_count != bucket.shard_count
        or write.generation != bucket.generation
        or refilled_at_ms < write.refilled_from_ms
        or (until_ms is not None and refilled_at_ms > until_ms)
        or (write.unexpired and bucket.is_expired(write.at_ms))
    ):
        return False
    cells, floors_milli, roofs_milli = bucket.cells, write.floors_milli, write.roofs_milli
    for name, amount_milli in write.takes_milli.items():
        if amount_milli:
            # A limit that another client has removed holds nothing.
            if name not in cells:
                return False
            tokens_milli = cells[name].tokens_milli
            if not floors_milli[name] <= tokens_milli <= roofs_milli.get(name, tokens_milli):
                return False
    return True


def _taken(write: Take, bucket: Bucket) -> Granted:
    return Granted(take_tokens(bucket, write.takes_milli, write.acquires, _recent(write, bucket)))


def _recent(write: Write, bucket: Bucket) -> tuple[str, ...]:
    return (write.operation, *bucket.recent[: REMEMBERED_OPERATIONS - 1])


def _remember(write: Write, bucket: Bucket) -> Bucket:
    return evolve(bucket, bucket.cells, recent=_recent(write, bucket))


def _still_planned_for(write: Refill, bucket: Bucket) -> bool:
    before = write.before
    return (
        bucket.refilled_at_ms == before.refilled_at_ms
        and bucket.fingerprint == before.fingerprint
        and bucket.part == before.part
        and bucket.dormant == before.dormant
        and all(guard.holds(bucket.cells[name]) for name, guard in guards(write).items())
    )


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
    # Fields that the write leaves alone keep what other clients have written meanwhile.
    return bucket._replace(
        cells=cells,
        refilled_at_ms=after.refilled_at_ms,
        fingerprint=after.fingerprint,
        acquires=bucket.acquires + after.acquires - before.acquires,
        shard_count=after.shard_count,
        generation=after.generation,
        dormant=after.dormant,
        **{field: getattr(after, field) for field in _changed(before, after)},
    )


def _changed(before: Bucket, after: Bucket) -> list[str]:
    """The fields of lifetime and owner that the write changes."""
    fields = ("expires_at_s", "parent_id", "cascade")
    return [field for field in fields if getattr(before, field) != getattr(after, field)]


def _is_full_by_then(write: Fill, bucket: Bucket) -> bool:
    if (
        bucket.fingerprint != write.fingerprint
        or write.shard_count != bucket.shard_count
        or write.generation != bucket.generation
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
        _, rate, consumed_milli, _ = cells[name]
        taken_milli = write.takes_milli.get(name, 0)
        cells[name] = Cell(tokens_milli, rate, consumed_milli + taken_milli)
    return evolve(
        bucket,
        cells,
        refilled_at_ms=write.at_ms,
        recent=_recent(write, bucket),
        acquires=write.acquires,
        stamps=(write.expires_at_s, write.parent_id, write.cascade),
    )


def adjusted(write: Adjust, bucket: Bucket) -> Bucket:
    """Return the bucket after a correction."""
    known = {name: d for name, d in write.deltas_milli.items() if name in bucket.cells}
    charges = {name: delta for name, delta in known.items() if delta > 0}
    charged = take_tokens(bucket, charges, write.acquires)
    credited = {name: credit(charged, name, -delta) for name, delta in known.items() if delta < 0}
    owed = owed_cells(write, bucket)
    return charged._replace(
        cells={**charged.cells, **credited, **owed}, dormant=bucket.dormant.union(owed)
    )


def owed_cells(write: Adjust, bucket: Bucket) -> dict[str, Cell]:
    """Return the limits that the bucket does not hold, and that the write charges all the same."""
    return {
        name: owing(bucket, name, write.rates[name], delta_milli, write.at_ms)
        for name, delta_milli in write.deltas_milli.items()
        if delta_milli > 0 and name not in bucket.cells and name in write.rates
    }
