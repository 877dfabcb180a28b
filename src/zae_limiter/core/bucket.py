"""A bucket as it is stored: all limits of one entity and resource in one value.

All limits share one refill time. Each limit keeps the remainder of its own division (`core.rates`),
so a slow limit beside a fast one loses nothing, however often the bucket is refilled.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from .limit import MILLI, BucketState, Limit, LimitSet
from .rates import Rate, rate_of, rescale_remainder
from .shards import RETIRED, Part, halve, sibling
from .validation import FORGOTTEN, SET_BACK, WCU

# The number of operation ids that an item remembers, to recognise a write that is sent again.
REMEMBERED_OPERATIONS = 4
# Item 0 of a split bucket lives so much longer than the others, and each client that uses them
# looks at it more often. Without this, item 0 could expire while its siblings are in use.
FIRST_ITEM_OUTLASTS_S = 3600
# The number of dormant limits that an item remembers by name. Of more, the limits that will be full
# first are remembered together: see `_forgotten_cell`.
MAX_DORMANT = 16
# A refill time that is further ahead of the store's clock was written by a wrong clock.
MAX_AHEAD_MS = 2000
# Cells that every item has for itself alone, whatever its part of the bucket.
_OWN = frozenset({WCU, FORGOTTEN, SET_BACK})


class BucketAddress(NamedTuple):
    """The address of a bucket item. A charge and its refund use one value: no refund can miss."""

    namespace_id: str
    entity_id: str
    resource: str
    shard: int = 0

    @property
    def home(self) -> BucketAddress:
        """The address of the first item, which stands for the whole bucket."""
        return self._replace(shard=0) if self.shard else self


Stamps = tuple[int | None, str | None, bool]
"""Lifetime and owner of an item: when it expires, its parent, and whether it cascades."""


class Cell(NamedTuple):
    """A cell is one limit of a bucket item. Its rate is the whole bucket's, not a shard's."""

    tokens_milli: int
    rate: Rate
    consumed_milli: int = 0
    remainder: int = 0

    @property
    def capacity_milli(self) -> int:
        """The most that the whole bucket may hold."""
        return self.rate.ceiling_milli


class Bucket(NamedTuple):
    """A bucket item: a whole bucket, or one shard of it.

    `dormant`: the limits among `cells` that are not in force. They refill like the others and are
    forgotten once they are full. Without them, a limit that is put in force again would start full.
    `fence`: a time, as operation ids tell it. A write that was planned before it is refused.
    `generation`: the split that made this item one of several; empty while it is the only one.
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
    fence: str = ""
    generation: str = ""

    @property
    def part(self) -> Part:
        """The part of the whole bucket that the item says it holds."""
        return Part(self.shard_count, self.generation)

    def rate(self, name: str) -> Rate:
        """Return the rate of this item's part of a limit. An item counts its own writes alone,
        whatever its part of the bucket."""
        rate = self.cells[name].rate
        if self.shard_count == 1 or name in _OWN:
            return rate
        return rate.part(self.shard, self.shard_count)

    def ceiling_milli(self, name: str) -> int:
        """The most this item may hold of a limit."""
        return self.rate(name).ceiling_milli

    def is_expired(self, now_ms: int) -> bool:
        """True when the store may drop the item at any moment."""
        return self.expires_at_s is not None and self.expires_at_s * 1000 <= now_ms


@lru_cache(maxsize=4096)
def cell_of(limit: Limit) -> Cell:
    """Return a full cell of a limit."""
    capacity_milli = limit.capacity * MILLI
    amount_milli, period_ms = limit.refill_amount * MILLI, limit.refill_period_seconds * 1000
    return Cell(capacity_milli, rate_of(capacity_milli, amount_milli, period_ms))


# One item may be written a thousand times a second, where a store limits writes.
WCU_CELL = Cell(1_000_000, rate_of(1_000_000, 1_000_000, 1000))


def full_bucket(limits: LimitSet, now_ms: int, *, metered: bool = False) -> Bucket:
    """Return an unused bucket. A metered bucket also counts its own writes."""
    cells = {limit.name: cell_of(limit) for limit in limits.limits}
    if metered:
        cells[WCU] = WCU_CELL
    return Bucket(cells, now_ms, limits.fingerprint)


def evolve(
    bucket: Bucket,
    cells: Mapping[str, Cell],
    *,
    refilled_at_ms: int | None = None,
    recent: tuple[str, ...] | None = None,
    acquires: int = 0,
    stamps: Stamps | None = None,
) -> Bucket:
    """Return the bucket with other cells, and with `acquires` more acquires. Every acquire passes
    here, and `_replace` takes three times as long."""
    expires_at_s, parent_id, cascade = stamps or (
        bucket.expires_at_s,
        bucket.parent_id,
        bucket.cascade,
    )
    return Bucket(
        cells,
        bucket.refilled_at_ms if refilled_at_ms is None else refilled_at_ms,
        bucket.fingerprint,
        bucket.recent if recent is None else recent,
        bucket.acquires + acquires,
        expires_at_s,
        bucket.shard,
        bucket.shard_count,
        parent_id,
        cascade,
        bucket.dormant,
        bucket.fence,
        bucket.generation,
    )


def refill(bucket: Bucket, now_ms: int) -> Bucket:
    """Credit every limit for the time since the last refill, which never moves backward."""
    since_ms = bucket.refilled_at_ms
    until_ms = max(since_ms, now_ms)
    cells = {}
    for name, (tokens_milli, rate, consumed_milli, remainder) in bucket.cells.items():
        part = rate if bucket.shard_count == 1 else bucket.rate(name)
        held_milli, rest = part.refill(tokens_milli, remainder, since_ms, until_ms)
        cells[name] = Cell(held_milli, rate, consumed_milli, rest)
    return evolve(bucket, cells, refilled_at_ms=until_ms)


def is_ahead(bucket: Bucket, now_ms: int) -> bool:
    """Return whether the refill time is damaged: further ahead of the store's clock than clocks
    that are right differ. Nothing is gained until that time has come."""
    return bucket.refilled_at_ms > now_ms + MAX_AHEAD_MS


def set_back(bucket: Bucket, now_ms: int) -> Bucket:
    """Return a bucket whose refill time was ahead, with the time set to now and nothing credited.

    The cell `SET_BACK` is full when the time that was undone has come. Without it, a client whose
    clock is ahead would credit the time between once more, each time that it is set back.
    """
    undone_ms = bucket.refilled_at_ms
    if SET_BACK in bucket.cells:
        undone_ms += time_to_fill_ms(bucket, SET_BACK)
    mark = Cell(1 - (undone_ms - now_ms), rate_of(1, 1, 1))
    return bucket._replace(
        cells={**bucket.cells, SET_BACK: mark},
        refilled_at_ms=now_ms,
        dormant=bucket.dormant | {SET_BACK},
    )


def _leap(bucket: Bucket, now_ms: int) -> Bucket | None:
    """Return a bucket that was set back, at a time past the one that was undone: nothing is
    credited, because this may be the clock that was wrong. None while that time is still to come,
    or if it has been reached in small steps."""
    left_ms = time_to_fill_ms(bucket, SET_BACK)
    if not MAX_AHEAD_MS < left_ms <= now_ms - bucket.refilled_at_ms:
        return None
    return bucket._replace(
        cells={name: cell for name, cell in bucket.cells.items() if name != SET_BACK},
        refilled_at_ms=now_ms,
        dormant=bucket.dormant - {SET_BACK},
    )


def has_leapt(before: Bucket, after: Bucket) -> bool:
    """Return whether the time of a bucket that was set back has gone on without a credit. That has
    to be written even where nothing is taken: without it, no time would ever be credited again."""
    return SET_BACK in before.dormant - after.dormant


def time_to_gain_ms(bucket: Bucket, name: str, gain_milli: int) -> int:
    """Return the first millisecond by which this much has been gained, the ceiling aside."""
    return bucket.rate(name).time_to_gain_ms(gain_milli, bucket.cells[name].remainder)


def time_to_fill_ms(bucket: Bucket, name: str) -> int:
    """Return the first millisecond by which a limit will be full, if nothing is taken."""
    missing_milli = bucket.ceiling_milli(name) - bucket.cells[name].tokens_milli
    return time_to_gain_ms(bucket, name, missing_milli)


def stamp(bucket: Bucket, limits: LimitSet, *, metered: bool = False) -> Bucket:
    """Put other limits in force. Balances stay, clamped to the new ceilings. New limits start
    full; limits that are gone are dormant until they are full.

    The bucket must have been refilled under its old limits first.
    """
    cells = {limit.name: _stamp_cell(bucket, limit) for limit in limits.limits}
    if metered:
        cells[WCU] = bucket.cells.get(WCU, WCU_CELL)
    stamped = bucket._replace(cells=cells, fingerprint=limits.fingerprint)
    clamped = {name: _clamp(stamped, name) for name in cells}
    dormant = _dormant_cells(bucket, clamped.keys())
    return stamped._replace(cells=clamped | dormant, dormant=frozenset(dormant))


def _dormant_cells(bucket: Bucket, in_force: Collection[str]) -> dict[str, Cell]:
    """Return the limits to remember besides those in force: debts, and limits that fill last."""
    cells = bucket.cells
    fill_ms = {
        name: time_to_fill_ms(bucket, name)
        for name in cells
        if name not in in_force and name not in _OWN
    }
    unfilled = [name for name in fill_ms if fill_ms[name]]
    unfilled.sort(key=lambda name: (cells[name].tokens_milli >= 0, -fill_ms[name]))
    kept = {name: cells[name] for name in unfilled[:MAX_DORMANT]}
    if SET_BACK in cells and time_to_fill_ms(bucket, SET_BACK):
        kept[SET_BACK] = cells[SET_BACK]
    forgotten = _forgotten_cell(bucket, unfilled[MAX_DORMANT:])
    return kept if forgotten is None else {**kept, FORGOTTEN: forgotten}


def _forgotten_cell(bucket: Bucket, names: Sequence[str]) -> Cell | None:
    """Return the cell that stands for all limits which are forgotten, these included. It gains a
    millitoken each millisecond and is full when the last of them is; its capacity is the largest
    debt among them. Without it, a limit that was forgotten would start full again."""
    left_ms = [time_to_fill_ms(bucket, name) for name in names]
    debts_milli = [1, *(-bucket.cells[name].tokens_milli for name in names)]
    if FORGOTTEN in bucket.cells:
        left_ms.append(time_to_fill_ms(bucket, FORGOTTEN))
        debts_milli.append(bucket.ceiling_milli(FORGOTTEN))
    if not any(left_ms):
        return None
    debt_milli = max(debts_milli)
    return Cell(debt_milli - max(left_ms), rate_of(debt_milli, 1, 1))


def _first_milli(bucket: Bucket, rate: Rate) -> int:
    """Return the balance that a limit begins with at this item: full, unless it may be one of the
    limits that were forgotten and are not full yet. Then it is the least that those can hold."""
    part = rate if bucket.shard_count == 1 else rate.part(bucket.shard, bucket.shard_count)
    if FORGOTTEN not in bucket.cells:
        return part.ceiling_milli
    left_ms = time_to_fill_ms(bucket, FORGOTTEN)
    least_milli = part.ceiling_milli - part.most_gain_milli(0, left_ms)
    return max(least_milli, -bucket.ceiling_milli(FORGOTTEN))


def _stamp_cell(bucket: Bucket, limit: Limit) -> Cell:
    fresh = cell_of(limit)
    old = bucket.cells.get(limit.name)
    if old is None:
        return fresh._replace(tokens_milli=_first_milli(bucket, fresh.rate))
    remainder = rescale_remainder(old.remainder, old.rate, fresh.rate)
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
    """Return the bucket as it stands now under these limits."""
    refilled = _leap(bucket, now_ms) if SET_BACK in bucket.cells else None
    if refilled is None:
        refilled = refill(bucket, now_ms)
    if carries(refilled, limits, metered=metered):
        return _forget_full(refilled) if refilled.dormant else refilled
    return stamp(refilled, limits, metered=metered)


def carries(bucket: Bucket, limits: LimitSet, *, metered: bool) -> bool:
    """Return whether these limits are in force. The fingerprint alone does not tell: a client that
    knows nothing of fingerprints may have removed a limit."""
    return (
        bucket.fingerprint == limits.fingerprint
        and limits.by_name.keys() <= bucket.cells.keys()
        and (not metered or WCU in bucket.cells)
    )


def _forget_full(bucket: Bucket) -> Bucket:
    """Forget dormant limits that are full: put in force again, they start full anyway."""
    full = {name for name in bucket.dormant if not time_to_fill_ms(bucket, name)}
    return bucket._replace(
        cells={name: cell for name, cell in bucket.cells.items() if name not in full},
        dormant=bucket.dormant - full,
    )


def split(bucket: Bucket, generation: str) -> tuple[Bucket, Bucket]:
    """Return the two shards that take a shard's place: the shard itself and its new sibling.
    Together they hold what the shard held, and refill as it did. The first split of a bucket
    begins a generation."""
    assert bucket.generation != RETIRED
    halves = {name: halve(cell.tokens_milli) for name, cell in bucket.cells.items()}
    if WCU in halves:
        # Writes are counted by item: the new one has not been written yet.
        halves[WCU] = (bucket.cells[WCU].tokens_milli, WCU_CELL.tokens_milli)
    for name in halves.keys() & {FORGOTTEN, SET_BACK}:
        halves[name] = (bucket.cells[name].tokens_milli,) * 2
    count = 2 * bucket.shard_count
    lower = {name: c._replace(tokens_milli=halves[name][0]) for name, c in bucket.cells.items()}
    upper = {
        name: c._replace(tokens_milli=halves[name][1], consumed_milli=0)
        for name, c in bucket.cells.items()
    }
    if bucket.shard_count > 1:
        generation = bucket.generation
    return (
        bucket._replace(
            cells=lower,
            expires_at_s=_first_item_lifetime(bucket),
            shard_count=count,
            generation=generation,
        ),
        bucket._replace(
            cells=upper,
            shard=sibling(bucket.shard, bucket.shard_count),
            shard_count=count,
            recent=(),
            acquires=0,
            generation=generation,
        ),
    )


def _first_item_lifetime(bucket: Bucket) -> int | None:
    expires_at_s, is_first_split = bucket.expires_at_s, bucket.shard_count == 1
    if expires_at_s is None or not is_first_split:
        return expires_at_s
    return expires_at_s + FIRST_ITEM_OUTLASTS_S


def merge(lower: Bucket, upper: Bucket) -> Bucket | None:
    """Return the shard that takes the place of two siblings, which have been brought up to the
    same time: a split backward. None when they carry different limits, have forgotten some, or were
    set back."""
    assert lower.shard_count == upper.shard_count
    assert lower.refilled_at_ms == upper.refilled_at_ms
    if lower.fingerprint != upper.fingerprint or lower.cells.keys() != upper.cells.keys():
        return None
    if lower.cells.keys() & {FORGOTTEN, SET_BACK}:
        return None
    count = lower.shard_count // 2
    generation = lower.generation if count > 1 else ""
    whole = lower._replace(shard_count=count, generation=generation)
    cells = {name: _merged_cell(whole, name, upper.cells[name]) for name in lower.cells}
    return whole._replace(cells=cells)


def _merged_cell(whole: Bucket, name: str, upper: Cell) -> Cell:
    lower = whole.cells[name]
    if name == WCU:
        return lower
    tokens_milli, remainder = whole.rate(name).join(
        lower.tokens_milli + upper.tokens_milli, lower.remainder + upper.remainder
    )
    return lower._replace(tokens_milli=tokens_milli, remainder=remainder)


def retire(bucket: Bucket, expires_at_s: int) -> Bucket:
    """Return an item whose part is another item's from now on. Its counters stay as they are."""
    return bucket._replace(generation=RETIRED, expires_at_s=expires_at_s)


def is_another(before: Bucket, after: Bucket) -> bool:
    """Return whether a write has put another item in the place of a remnant. An item keeps its
    counters when it is retired; item 0 keeps them whatever becomes of its generation."""
    return after.shard > 0 and after.generation not in (before.generation, RETIRED)


def covers(bucket: Bucket, takes_milli: Mapping[str, int]) -> bool:
    """Return whether the stored balances hold these amounts. An amount of zero never blocks."""
    cells = bucket.cells
    for name, amount_milli in takes_milli.items():
        if amount_milli and cells[name].tokens_milli < amount_milli:
            return False
    return True


def take_tokens(
    bucket: Bucket,
    takes_milli: Mapping[str, int],
    acquires: int,
    recent: tuple[str, ...] | None = None,
) -> Bucket:
    """Move these amounts out of the bucket, unconditionally."""
    cells = dict(bucket.cells)
    for name, amount_milli in takes_milli.items():
        if amount_milli:
            held_milli, rate, consumed_milli, remainder = cells[name]
            cells[name] = Cell(
                held_milli - amount_milli, rate, consumed_milli + amount_milli, remainder
            )
    return evolve(bucket, cells, recent=recent, acquires=acquires)


def credit(bucket: Bucket, name: str, amount_milli: int) -> Cell:
    """Give tokens back, up to the ceiling. The consumption counter drops by the whole amount."""
    cell = bucket.cells[name]
    tokens_milli = cell.tokens_milli + amount_milli
    consumed_milli = cell.consumed_milli - amount_milli
    ceiling_milli = bucket.ceiling_milli(name)
    if tokens_milli >= ceiling_milli:
        return cell._replace(tokens_milli=ceiling_milli, consumed_milli=consumed_milli, remainder=0)
    return cell._replace(tokens_milli=tokens_milli, consumed_milli=consumed_milli)


def owing(bucket: Bucket, name: str, rate: Rate, amount_milli: int, now_ms: int) -> Cell:
    """Return the cell of a limit that this item does not hold, charged now: until then the limit
    was full. The next refill will credit the time since the last, in which a full limit gains
    nothing."""
    since_ms = bucket.refilled_at_ms
    part = rate if bucket.shard_count == 1 else rate.part(bucket.shard, bucket.shard_count)
    credited_milli = part.most_gain_milli(since_ms, max(since_ms, now_ms))
    return Cell(_first_milli(bucket, rate) - credited_milli - amount_milli, rate, amount_milli)


def bucket_states(address: BucketAddress, bucket: Bucket) -> list[BucketState]:
    """Return the states that users see of a bucket: one for each limit in force."""
    return [
        BucketState(
            address.entity_id,
            address.resource,
            name,
            cell.tokens_milli,
            bucket.refilled_at_ms,
            *cell.rate,
            cell.consumed_milli,
        )
        for name, cell in bucket.cells.items()
        if name != WCU and name not in bucket.dormant
    ]
