"""A bucket as it is stored: all limits of one entity and resource in one value.

All limits share one refill time. Each keeps the remainder of its own division, so that
a slow limit beside a fast one loses nothing however often the bucket is refilled:

    added, remainder' = divmod(elapsed * refill_amount + remainder, refill_period)

A full cell has no remainder: what would accrue above the ceiling never existed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import NamedTuple

from .limit import MILLI, BucketState, Limit, LimitSet
from .shards import halve, share, sibling
from .validation import WCU

# How many of the last writes an item remembers, to recognise one that is sent again.
REMEMBERED_OPERATIONS = 4
# How many limits that are not in force an item remembers. Where there are more, those that will
# be full first are forgotten.
MAX_DORMANT = 16


class BucketAddress(NamedTuple):
    """Where a bucket is. The same value is charged, refunded and read."""

    namespace_id: str
    entity_id: str
    resource: str
    shard: int = 0

    @property
    def home(self) -> BucketAddress:
        """The address that stands for the whole bucket: that of its first item."""
        return self._replace(shard=0) if self.shard else self


class Cell(NamedTuple):
    """One limit of a bucket. Capacity and rate are those of the whole, not of a shard."""

    tokens_milli: int
    capacity_milli: int
    refill_amount_milli: int
    refill_period_ms: int
    consumed_milli: int = 0
    remainder: int = 0


class Bucket(NamedTuple):
    """One bucket item.

    `dormant`: the limits among `cells` that are not in force. They refill like the others, so
    that one that is put in force again is not fresh, and are forgotten once they are full.
    """

    cells: Mapping[str, Cell]
    refilled_at_ms: int
    fingerprint: str
    recent: tuple[str, ...] = ()
    acquires: int = 0
    expires_at_s: int | None = None
    shard: int = 0
    shard_count: int = 1
    parent_id: str | None = None
    cascade: bool = False
    dormant: frozenset[str] = frozenset()

    def part(self, name: str) -> tuple[int, int]:
        """What this item may hold of a limit, in millitokens, and in how many milliseconds it
        gains the refill amount."""
        cell = self.cells[name]
        if self.shard_count == 1 or name == WCU:
            return cell.capacity_milli, cell.refill_period_ms
        ceiling_milli = share(cell.capacity_milli, self.shard, self.shard_count)
        return ceiling_milli, cell.refill_period_ms * self.shard_count

    def ceiling_milli(self, name: str) -> int:
        """The most this item may hold of a limit."""
        return self.part(name)[0]

    def period_ms(self, name: str) -> int:
        """The refill period of this item's share of a limit."""
        return self.part(name)[1]

    def is_expired(self, now_ms: int) -> bool:
        """True when the store may drop the item at any moment."""
        return self.expires_at_s is not None and self.expires_at_s * 1000 <= now_ms


# Buckets with the same limit share the numbers that describe it: they are most of a cell.
@lru_cache(maxsize=4096)
def cell_of(limit: Limit) -> Cell:
    """A full cell."""
    capacity_milli = limit.capacity * MILLI
    return Cell(
        capacity_milli,
        capacity_milli,
        limit.refill_amount * MILLI,
        limit.refill_period_seconds * 1000,
    )


# What one item may be written in a second, where a store charges for writes and limits them.
WCU_CELL = Cell(1_000_000, 1_000_000, 1_000_000, 1000)


def full_bucket(limits: LimitSet, now_ms: int, *, metered: bool = False) -> Bucket:
    """A bucket that nobody has used yet. A metered one also counts its own writes."""
    cells = {limit.name: cell_of(limit) for limit in limits.limits}
    if metered:
        cells[WCU] = WCU_CELL
    return Bucket(cells, now_ms, limits.fingerprint)


def renewed(
    bucket: Bucket,
    cells: Mapping[str, Cell],
    *,
    refilled_at_ms: int | None = None,
    recent: tuple[str, ...] | None = None,
    acquires: int = 0,
) -> Bucket:
    """The bucket with these cells. What `_replace` does, in a fraction of its time: every
    acquire passes here."""
    return Bucket(
        cells,
        bucket.refilled_at_ms if refilled_at_ms is None else refilled_at_ms,
        bucket.fingerprint,
        bucket.recent if recent is None else recent,
        bucket.acquires + acquires,
        bucket.expires_at_s,
        bucket.shard,
        bucket.shard_count,
        bucket.parent_id,
        bucket.cascade,
        bucket.dormant,
    )


def owned(bucket: Bucket, expires_at_s: int | None, parent_id: str | None, cascade: bool) -> Bucket:
    """The bucket with this lifetime and owner. In the same way: the lifetime of one that is not
    used all the time is another at each acquire."""
    return Bucket(
        bucket.cells,
        bucket.refilled_at_ms,
        bucket.fingerprint,
        bucket.recent,
        bucket.acquires,
        expires_at_s,
        bucket.shard,
        bucket.shard_count,
        parent_id,
        cascade,
        bucket.dormant,
    )


def refill(bucket: Bucket, now_ms: int) -> Bucket:
    """Credit every limit for the time since the last refill. Time never moves backward."""
    elapsed_ms = max(0, now_ms - bucket.refilled_at_ms)
    is_whole = bucket.shard_count == 1
    cells = {}
    for name, (tokens, capacity, amount, period, consumed, remainder) in bucket.cells.items():
        ceiling, part_period = (capacity, period) if is_whole else bucket.part(name)
        added, rest = divmod(elapsed_ms * amount + remainder, part_period)
        if tokens + added < ceiling:
            cells[name] = Cell(tokens + added, capacity, amount, period, consumed, rest)
        else:
            cells[name] = Cell(ceiling, capacity, amount, period, consumed, 0)
    return renewed(bucket, cells, refilled_at_ms=bucket.refilled_at_ms + elapsed_ms)


def time_to_gain_ms(bucket: Bucket, name: str, gain_milli: int) -> int:
    """The first millisecond by which this much has been refilled, the ceiling aside."""
    cell = bucket.cells[name]
    missing = gain_milli * bucket.period_ms(name) - cell.remainder
    return max(0, -(-missing // cell.refill_amount_milli))


def time_to_fill_ms(bucket: Bucket, name: str) -> int:
    """The first millisecond by which a limit will be full, if nothing is taken."""
    missing_milli = bucket.ceiling_milli(name) - bucket.cells[name].tokens_milli
    return time_to_gain_ms(bucket, name, missing_milli)


def stamp(bucket: Bucket, limits: LimitSet, *, metered: bool = False) -> Bucket:
    """Put other limits in force: balances stay, clamped to the new ceilings; limits that
    are new start full, limits that are gone are dormant until they are full.

    The bucket must have been refilled under its old limits first.
    """
    cells = {limit.name: _stamp_cell(bucket, limit) for limit in limits.limits}
    if metered:
        cells[WCU] = bucket.cells.get(WCU, WCU_CELL)
    stamped = bucket._replace(cells=cells, fingerprint=limits.fingerprint)
    clamped = {name: _clamp(stamped, name) for name in cells}
    dormant = _dormant(bucket, clamped.keys())
    cells = clamped | {name: bucket.cells[name] for name in dormant}
    return stamped._replace(cells=cells, dormant=frozenset(dormant))


def _dormant(bucket: Bucket, in_force: Collection[str]) -> list[str]:
    """The limits to remember besides those in force."""
    fill_ms = {
        name: time_to_fill_ms(bucket, name)
        for name in bucket.cells
        if name not in in_force and name != WCU
    }
    slowest_first = sorted(fill_ms, key=lambda name: -fill_ms[name])
    return [name for name in slowest_first if fill_ms[name]][:MAX_DORMANT]


def _stamp_cell(bucket: Bucket, limit: Limit) -> Cell:
    fresh = cell_of(limit)
    old = bucket.cells.get(limit.name)
    if old is None:
        return fresh
    # A remainder is a part of a millitoken, counted in periods; a new period rescales it.
    remainder = old.remainder * fresh.refill_period_ms // old.refill_period_ms
    return fresh._replace(
        tokens_milli=old.tokens_milli, consumed_milli=old.consumed_milli, remainder=remainder
    )


def _clamp(bucket: Bucket, name: str) -> Cell:
    cell = bucket.cells[name]
    ceiling_milli = bucket.ceiling_milli(name)
    if cell.tokens_milli < ceiling_milli:
        return cell
    return cell._replace(tokens_milli=ceiling_milli, remainder=0)


def at(bucket: Bucket, limits: LimitSet, now_ms: int, *, metered: bool = False) -> Bucket:
    """The bucket as it stands now under these limits."""
    refilled = refill(bucket, now_ms)
    if carries(refilled, limits, metered=metered):
        return _forget_full(refilled) if refilled.dormant else refilled
    return stamp(refilled, limits, metered=metered)


def carries(bucket: Bucket, limits: LimitSet, *, metered: bool) -> bool:
    """Whether these limits are in force. A client that knows nothing of fingerprints may have
    taken one away."""
    return (
        bucket.fingerprint == limits.fingerprint
        and limits.by_name.keys() <= bucket.cells.keys()
        and (not metered or WCU in bucket.cells)
    )


def _forget_full(bucket: Bucket) -> Bucket:
    """Let go of limits that are not in force and full: as new ones they would start full."""
    full = {name for name in bucket.dormant if not time_to_fill_ms(bucket, name)}
    return bucket._replace(
        cells={name: cell for name, cell in bucket.cells.items() if name not in full},
        dormant=bucket.dormant - full,
    )


def split(bucket: Bucket) -> tuple[Bucket, Bucket]:
    """The two shards that take a shard's place: this one and its new sibling. Together they
    hold what it held, and refill as it did. Neither expires: see `planner._expires_at_s`."""
    halves = {name: halve(cell.tokens_milli) for name, cell in bucket.cells.items()}
    if WCU in halves:
        # Writes are counted by item: the new one has not been written yet.
        halves[WCU] = (bucket.cells[WCU].tokens_milli, WCU_CELL.tokens_milli)
    count = 2 * bucket.shard_count
    lower = {name: c._replace(tokens_milli=halves[name][0]) for name, c in bucket.cells.items()}
    upper = {
        name: c._replace(tokens_milli=halves[name][1], consumed_milli=0)
        for name, c in bucket.cells.items()
    }
    return (
        bucket._replace(cells=lower, shard_count=count, expires_at_s=None),
        bucket._replace(
            cells=upper,
            expires_at_s=None,
            shard=sibling(bucket.shard, bucket.shard_count),
            shard_count=count,
            recent=(),
            acquires=0,
        ),
    )


def covers(bucket: Bucket, takes_milli: Mapping[str, int]) -> bool:
    """Whether the balances, as they are, hold these amounts. Nothing asked never blocks."""
    cells = bucket.cells
    for name, amount_milli in takes_milli.items():
        if amount_milli and cells[name].tokens_milli < amount_milli:
            return False
    return True


def take(
    bucket: Bucket,
    takes_milli: Mapping[str, int],
    acquires: int,
    recent: tuple[str, ...] | None = None,
) -> Bucket:
    """Move these amounts out of the bucket, unconditionally."""
    cells = dict(bucket.cells)
    for name, amount_milli in takes_milli.items():
        if amount_milli:
            tokens, capacity, refill_amount, refill_period, consumed, remainder = cells[name]
            cells[name] = Cell(
                tokens - amount_milli,
                capacity,
                refill_amount,
                refill_period,
                consumed + amount_milli,
                remainder,
            )
    return renewed(bucket, cells, recent=recent, acquires=acquires)


def credit(bucket: Bucket, name: str, amount_milli: int) -> Cell:
    """Give tokens back, up to the ceiling; the consumption counter drops by all of it."""
    cell = bucket.cells[name]
    tokens_milli = cell.tokens_milli + amount_milli
    consumed_milli = cell.consumed_milli - amount_milli
    ceiling_milli = bucket.ceiling_milli(name)
    if tokens_milli >= ceiling_milli:
        return cell._replace(tokens_milli=ceiling_milli, consumed_milli=consumed_milli, remainder=0)
    return cell._replace(tokens_milli=tokens_milli, consumed_milli=consumed_milli)


def bucket_states(address: BucketAddress, bucket: Bucket) -> list[BucketState]:
    """What users see of a bucket: one state for each limit that is theirs."""
    return [
        BucketState(
            address.entity_id,
            address.resource,
            name,
            cell.tokens_milli,
            bucket.refilled_at_ms,
            cell.capacity_milli,
            cell.refill_amount_milli,
            cell.refill_period_ms,
            cell.consumed_milli,
        )
        for name, cell in bucket.cells.items()
        if name != WCU and name not in bucket.dormant
    ]
