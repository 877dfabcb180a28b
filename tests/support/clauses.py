"""What each write demands and does, said a second time, clause by clause.

It must agree with `core.apply.apply`. Leaving a clause out makes a limiter that is wrong
in a known way: the checks that let such a one pass are worth nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import assert_never

from zae_limiter.core.apply import apply, created
from zae_limiter.core.bucket import REMEMBERED_OPERATIONS, Bucket, Cell, owing, take_tokens
from zae_limiter.core.shards import RETIRED
from zae_limiter.core.validation import WCU
from zae_limiter.core.writes import (
    Adjust,
    Create,
    Fill,
    Granted,
    Outcome,
    Refill,
    Refused,
    Take,
    Write,
)


def clauses(write: Write, bucket: Bucket) -> dict[str, bool]:
    """Which demands of the write this bucket meets."""
    match write:
        case Create():
            remnant = bucket.shard > 0 and bucket.generation != write.bucket.generation
            return {"absent": remnant}
        case Adjust():
            return {"generation": write.generation in (None, bucket.generation)}
        case Take():
            return _within(write, bucket)
        case Fill():
            return {
                "limits": write.fingerprint == bucket.fingerprint,
                "by": bucket.refilled_at_ms <= write.refilled_by_ms,
                "shard_count": write.shard_count == bucket.shard_count,
                "generation": write.generation == bucket.generation,
                "dormant": not bucket.dormant,
                "full": all(
                    name in bucket.cells and bucket.cells[name].tokens_milli >= floor_milli
                    for name, floor_milli in write.floors_milli.items()
                ),
            }
        case Refill():
            seen = write.before
            kept = list(_kept(write, bucket))
            return {
                "limits": seen.fingerprint == bucket.fingerprint,
                "rf": seen.refilled_at_ms == bucket.refilled_at_ms,
                "shard_count": seen.shard_count == bucket.shard_count,
                "generation": seen.generation == bucket.generation,
                "dormant": seen.dormant == bucket.dormant,
                "floor": all(_floor(*cells) for cells in kept),
                "roof": all(cell.tokens_milli <= was.tokens_milli for cell, was, _ in kept),
                "remainder": all(cell.remainder == was.remainder for cell, was, _ in kept),
                "same": all(_same(write, bucket, name) for name in seen.cells),
            }
        case _:
            assert_never(write)


def _within(write: Take, bucket: Bucket) -> dict[str, bool]:
    """A taking of what is stored and one of what was gained fail in different ways without
    their floors, so each has a name of its own for that clause."""
    until_ms = write.refilled_until_ms
    taken = list(_taken(write, bucket))
    return {
        "limits": write.fingerprint == bucket.fingerprint,
        "from": write.refilled_from_ms <= bucket.refilled_at_ms,
        "until": until_ms is None or bucket.refilled_at_ms <= until_ms,
        "shard_count": write.shard_count == bucket.shard_count,
        "generation": write.generation == bucket.generation,
        "stored" if until_ms is None else "gained": all(
            cell.tokens_milli >= floor_milli for cell, floor_milli, _ in taken
        ),
        "overflow": all(cell.tokens_milli <= roof_milli for cell, _, roof_milli in taken),
        "expiry": not (write.unexpired and bucket.is_expired(write.at_ms)),
    }


def _taken(write: Take, bucket: Bucket) -> Iterator[tuple[Cell, int, int]]:
    """Each limit of which something is taken: as it is stored, its floor, and its roof if
    it has one."""
    for name, amount_milli in write.takes_milli.items():
        if amount_milli > 0 and name in bucket.cells:
            cell, floor_milli = bucket.cells[name], write.floors_milli[name]
            yield cell, floor_milli, write.roofs_milli.get(name, cell.tokens_milli)


def _kept(write: Refill, bucket: Bucket) -> Iterator[tuple[Cell, Cell, Cell]]:
    """Each limit that stays: as it is stored, as it was seen, as it was planned."""
    for name, planned in write.after.cells.items():
        if name in bucket.cells and name in write.before.cells:
            yield bucket.cells[name], write.before.cells[name], planned


def _floor(cell: Cell, seen: Cell, planned: Cell) -> bool:
    left_milli = cell.tokens_milli + planned.tokens_milli - seen.tokens_milli
    takes = planned.consumed_milli > seen.consumed_milli
    return left_milli >= 0 or (left_milli >= cell.tokens_milli and not takes)


def _same(write: Refill, bucket: Bucket, name: str) -> bool:
    """A limit that the write fills or forgets is as it was when that was planned, and so is one
    whose item is merged. A split fills none: it hands on what is there."""
    planned, seen = write.after.cells.get(name), write.before.cells[name]
    splits = write.after.shard_count > write.before.shard_count
    merges = write.after.shard_count < write.before.shard_count
    if (merges or write.after.generation == RETIRED) and name in bucket.cells and name != WCU:
        return bucket.cells[name].tokens_milli == seen.tokens_milli
    if name not in bucket.cells or name == WCU or splits:
        return True
    if planned is None:
        now = bucket.cells[name]
        return (now.tokens_milli, now.remainder) == (seen.tokens_milli, seen.remainder)
    charged_milli = planned.consumed_milli - seen.consumed_milli
    is_filled = planned.tokens_milli + charged_milli >= write.after.ceiling_milli(name)
    return not is_filled or bucket.cells[name].tokens_milli == seen.tokens_milli


def outcome_without(*ignored: str) -> Callable[[Write, Bucket | None], Outcome]:
    """`apply`, as told by the clauses that are not ignored."""

    def outcome(write: Write, bucket: Bucket | None) -> Outcome:
        if bucket is None:
            return apply(write, None)
        if write.operation in bucket.recent and "memory" not in ignored:
            return Granted(bucket)
        if write.operation < bucket.fence and "fence" not in ignored:
            return Refused(bucket)
        met = clauses(write, bucket)
        if not all(holds for name, holds in met.items() if name not in ignored):
            return Refused(bucket)
        remembers = write.bucket if isinstance(write, Create) else bucket
        recent = (write.operation, *remembers.recent)[:REMEMBERED_OPERATIONS]
        return Granted(_effect(write, bucket)._replace(recent=recent))

    return outcome


def _effect(write: Write, bucket: Bucket) -> Bucket:
    match write:
        case Create():
            return created(write)
        case Take():
            return take_tokens(bucket, write.takes_milli, write.acquires)
        case Adjust():
            return _adjusted(write, bucket)
        case Fill():
            return _filled(write, bucket)
        case Refill():
            return _moved(write, bucket)
        case _:
            assert_never(write)


def _filled(write: Fill, bucket: Bucket) -> Bucket:
    cells = dict(bucket.cells)
    for name, cell in bucket.cells.items():
        taken_milli = write.takes_milli.get(name, 0)
        if name in write.floors_milli:
            cells[name] = cell._replace(
                tokens_milli=bucket.ceiling_milli(name) - taken_milli,
                consumed_milli=cell.consumed_milli + taken_milli,
                remainder=0,
            )
    return bucket._replace(
        cells=cells,
        refilled_at_ms=write.at_ms,
        acquires=bucket.acquires + write.acquires,
        expires_at_s=write.expires_at_s,
        parent_id=write.parent_id,
        cascade=write.cascade,
    )


def _adjusted(write: Adjust, bucket: Bucket) -> Bucket:
    cells = dict(bucket.cells)
    for name in cells.keys() & write.deltas_milli.keys():
        cell, delta_milli = cells[name], write.deltas_milli[name]
        ceiling_milli = bucket.ceiling_milli(name)
        tokens_milli = cell.tokens_milli - delta_milli
        full = tokens_milli >= ceiling_milli and delta_milli < 0
        cells[name] = cell._replace(
            tokens_milli=min(tokens_milli, ceiling_milli),
            consumed_milli=cell.consumed_milli + delta_milli,
            remainder=0 if full else cell.remainder,
        )
    lacking = {name for name in write.rates if name not in cells and write.deltas_milli[name] > 0}
    for name in lacking:
        cells[name] = owing(bucket, name, write.rates[name], write.deltas_milli[name], write.at_ms)
    return bucket._replace(
        cells=cells, acquires=bucket.acquires + write.acquires, dormant=bucket.dormant | lacking
    )


def _moved(write: Refill, bucket: Bucket) -> Bucket:
    before, after = write.before, write.after
    cells = dict(after.cells)
    for name in after.cells.keys() & before.cells.keys() & bucket.cells.keys():
        cell, seen, planned = bucket.cells[name], before.cells[name], after.cells[name]
        cells[name] = planned._replace(
            tokens_milli=cell.tokens_milli + planned.tokens_milli - seen.tokens_milli,
            consumed_milli=cell.consumed_milli + planned.consumed_milli - seen.consumed_milli,
        )
    return after._replace(
        cells=cells,
        acquires=bucket.acquires + after.acquires - before.acquires,
        shard=bucket.shard,
    )
