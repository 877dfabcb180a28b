"""Debt is the bucket's, not the item's: while all items together hold less than nothing, no item
holds anything.

A correction that its item cannot cover is spread over all items, in one transaction: first what
they hold is used up; what is then still owed is shared as the capacity is. So all items are out
of debt at the same moment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from ...core.bucket import Bucket, BucketAddress, refill
from ...core.exceptions import StorageUnavailable
from ...core.limit import MILLI
from ...core.planner import rates_charged
from ...core.shards import share
from ...core.validation import FORGOTTEN, SET_BACK, WCU
from ...core.writes import Adjust, Refill
from ..acquire.charge import ONE_WRITE_MILLI, Correction
from ..acquire.send import Addressed, send, step_back
from ..scope import Scope
from .holes import read_whole
from .items import Items, send_together
from .split_amount import Parts, split_amount

# Each lost race means that another client has written to one of the items.
_MAX_ROUNDS = 16
_NOTHING = Correction({}, 0)
# Cells that are not limits: nobody owes them.
_OWN = frozenset({WCU, FORGOTTEN, SET_BACK})


def may_owe(bucket: Bucket, deltas_milli: Mapping[str, int], now_ms: int) -> bool:
    """Return whether a correction begins or ends below zero at an item of several."""
    if bucket.shard_count == 1:
        return False
    cells = refill(bucket, now_ms).cells
    return any(
        cells[name].tokens_milli - max(0, delta_milli) < 0
        for name, delta_milli in deltas_milli.items()
        if name in cells and name != WCU
    )


async def spread_correction(
    scope: Scope, address: BucketAddress, correction: Correction
) -> Items | None:
    """Charge or give back at all items of a bucket that is in debt, or would be. Returns the items
    then; None when nothing was done: the bucket is no longer split, or cannot be read."""
    with suppress(StorageUnavailable):
        await _refill_full_items(scope, address.home)
    for lost in range(_MAX_ROUNDS):
        found = await _read(scope, address.home)
        if len(found) < 2:
            return None
        parts = shared(found, address, correction.deltas_milli, scope.io.now_ms())
        parts = parts or {next(iter(found)): {}}
        if await send_together(scope, _writes(scope, found, parts, correction)):
            with suppress(StorageUnavailable):
                return await level_debt(scope, address.home)
            return {each: scope.local.images.get(each) or found[each] for each in parts}
        await step_back(scope, lost)
    return None


async def _read(scope: Scope, home: BucketAddress) -> Items:
    """Read all items; none when the store cannot answer. A correction is owed all the same."""
    with suppress(StorageUnavailable):
        return await read_whole(scope, home)
    return {}


async def level_debt(scope: Scope, home: BucketAddress) -> Items:
    """Share a debt that some items have among all of them. Returns the items then."""
    for lost in range(_MAX_ROUNDS):
        found = await read_whole(scope, home)
        if len(found) < 2 or not is_uneven(found, scope.io.now_ms()):
            break
        if not lost:
            await _refill_full_items(scope, home)
            continue
        parts = shared(found, home, {}, scope.io.now_ms())
        if not await send_together(scope, _writes(scope, found, parts, _NOTHING)):
            await step_back(scope, lost)
    return found


async def _refill_full_items(scope: Scope, home: BucketAddress) -> None:
    """Refill items that have become full since they were last refilled. Without this, the time
    that they let pass while they were full would pay a debt that begins now."""
    now_ms = scope.io.now_ms()
    for address, bucket in (await read_whole(scope, home)).items():
        current = refill(bucket, now_ms)
        is_full = any(
            cell.tokens_milli >= current.ceiling_milli(name)
            for name, cell in current.cells.items()
            if name not in _OWN
        )
        if is_full and current.refilled_at_ms > bucket.refilled_at_ms:
            write = Refill(scope.io.operation_id(), now_ms, bucket, current)
            await send(scope, address, write)


def is_uneven(found: Items, now_ms: int) -> bool:
    """Return whether an item could admit something though all items together owe, or owes
    something though others hold enough."""
    items = {address: refill(bucket, now_ms) for address, bucket in found.items()}
    return any(_is_uneven(items, name) for name in _names(items))


def _is_uneven(items: Items, name: str) -> bool:
    held_milli = _held_milli(items, name)
    owed_milli = -sum(held_milli.values())
    if owed_milli <= 0:
        return any(amount_milli <= -MILLI for amount_milli in held_milli.values())
    level_milli = _level_milli(items, owed_milli)
    return any(held_milli[address] >= level_milli[address] + MILLI for address in items)


def shared(
    found: Items, address: BucketAddress, deltas_milli: Mapping[str, int], now_ms: int
) -> Parts:
    """Return what each item gives, or gets where it is negative, so that a correction at `address`
    is carried out and no item is in debt unless all are, by their shares."""
    items = {each: refill(bucket, now_ms) for each, bucket in found.items()}
    parts: Parts = {}
    for name in _names(items):
        wanted_milli = _balances_after(items, address, name, deltas_milli.get(name, 0))
        for each, held_milli in _held_milli(items, name).items():
            if held_milli != wanted_milli[each]:
                parts.setdefault(each, {})[name] = held_milli - wanted_milli[each]
    for name in deltas_milli.keys() - _names(items) - {WCU}:
        # Some items carry other limits already. The correction stays at its own item.
        at_item = _giver(items, address)
        parts.setdefault(at_item, {})[name] = deltas_milli[name]
    return parts


def _balances_after(
    items: Items, address: BucketAddress, name: str, delta_milli: int
) -> Mapping[BucketAddress, int]:
    held_milli = _held_milli(items, name)
    owed_milli = delta_milli - sum(held_milli.values())
    if owed_milli > 0:
        return _level_milli(items, owed_milli)
    held_milli[_giver(held_milli, address)] -= delta_milli
    lacking_milli = {each: -held for each, held in held_milli.items() if held < 0}
    givers = {each: {name: held} for each, held in held_milli.items() if held > 0}
    given = split_amount(givers, {name: sum(lacking_milli.values())}, reserve_pct=0)
    for each, parts_milli in given.items():
        held_milli[each] -= parts_milli[name]
    return {each: max(0, held) for each, held in held_milli.items()}


def _giver(held: Collection[BucketAddress], address: BucketAddress) -> BucketAddress:
    return address if address in held else next(iter(held))


def _held_milli(items: Items, name: str) -> dict[BucketAddress, int]:
    return {address: item.cells[name].tokens_milli for address, item in items.items()}


def _level_milli(items: Items, owed_milli: int) -> dict[BucketAddress, int]:
    """Share a debt as the capacity is shared."""
    return {
        address: -share(owed_milli, address.shard, item.shard_count)
        for address, item in items.items()
    }


def _names(items: Items) -> list[str]:
    """Return the limits that all items have."""
    names = set.intersection(*(set(item.cells) for item in items.values()))
    return sorted(names - _OWN)


def _writes(scope: Scope, found: Items, parts: Parts, correction: Correction) -> list[Addressed]:
    """Return a write for each item that is concerned, the first of which counts the acquires."""
    io, now_ms = scope.io, scope.io.now_ms()
    writes: list[Addressed] = []
    for address, part_milli in parts.items():
        bucket = found[address]
        rates = rates_charged(part_milli, correction.intents)
        held = bucket.cells.keys() | rates.keys()
        deltas_milli = {name: delta for name, delta in part_milli.items() if name in held}
        if scope.store.buckets.metered and WCU in bucket.cells:
            deltas_milli[WCU] = ONE_WRITE_MILLI
        write = Adjust(
            io.operation_id(),
            now_ms,
            deltas_milli,
            0 if writes else correction.acquires,
            bucket,
            rates=rates,
            generation=bucket.generation if address.shard else None,
        )
        writes.append((address, write))
    return writes
