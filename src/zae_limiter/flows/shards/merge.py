"""Merging siblings when the load is gone: the split's transaction backward.

The lower sibling takes over the part of the upper one, which is retired: it refuses every write,
and goes when its short lifetime ends. Item 0 goes first, because clients split other items as far
as item 0 is split.
"""

from __future__ import annotations

from ...core.bucket import Bucket, BucketAddress, at, is_ahead, merge, refill, retire
from ...core.planner import Intent, stamped
from ...core.writes import Refill
from ..acquire.send import Addressed
from ..scope import Scope
from .items import Items, holder, read_all, send_together, without_remnants

# Longer than any write takes that was planned on the item before it was retired.
_RETIRED_FOR_S = 600
# As many rounds as lead from the most shards to one.
_MAX_ROUNDS = 8


async def merge_down(scope: Scope, home: BucketAddress, intent: Intent, shard_count: int) -> None:
    """Merge siblings until no item is a smaller part than one of `shard_count`. A pair that other
    clients write to meanwhile stays until the next time."""
    for _ in range(_MAX_ROUNDS):
        found = await read_all(scope, home)
        count = max((bucket.shard_count for bucket in found.values()), default=1)
        if count <= shard_count:
            return
        merged = 0
        for lower in _lower_siblings(found, count):
            merged += await _merge_pair(scope, intent, found, lower)
        if not merged:
            return


def _lower_siblings(found: Items, count: int) -> list[BucketAddress]:
    """Return the lower items of all pairs of siblings with this count, item 0 first."""
    half = count // 2
    lower = [address for address in found if address.shard < half]
    return sorted(
        address
        for address in lower
        for sibling in [found.get(address._replace(shard=address.shard + half))]
        if sibling is not None and sibling.shard_count == found[address].shard_count == count
    )


async def _merge_pair(scope: Scope, intent: Intent, found: Items, address: BucketAddress) -> bool:
    """Merge an item and its upper sibling. False when other clients wrote to them meanwhile."""
    lower = found[address]
    sibling = address._replace(shard=address.shard + lower.shard_count // 2)
    upper = found[sibling]
    if is_ahead(lower, scope.io.now_ms()) or is_ahead(upper, scope.io.now_ms()):
        return False
    now_ms = max(scope.io.now_ms(), lower.refilled_at_ms, upper.refilled_at_ms)
    pair = [at(item, intent.limits, now_ms, metered=intent.metered) for item in (lower, upper)]
    merged = merge(*pair)
    if merged is None:
        return False
    whole = stamped(intent, merged, now_ms)
    operation_id = scope.io.operation_id
    writes: list[Addressed] = [
        (address, Refill(operation_id(), now_ms, lower, whole)),
        (sibling, Refill(operation_id(), now_ms, upper, _retired(upper, now_ms))),
    ]
    return await send_together(scope, writes)


def _retired(bucket: Bucket, now_ms: int) -> Bucket:
    return retire(bucket, -(-now_ms // 1000) + _RETIRED_FOR_S)


async def retire_covered(scope: Scope, found: Items) -> None:
    """Retire items whose part a lower shard holds, too: old items that were put back."""
    kept = without_remnants(found)
    for address, bucket in found.items():
        by = None if address in kept else holder(address.shard, kept)
        if by is not None and scope.local.is_in_force(address, bucket):
            await _retire_item(scope, found, address, by)


async def _retire_item(
    scope: Scope, found: Items, address: BucketAddress, by: BucketAddress
) -> None:
    """Retire an item, if another one holds its part at that very moment: a split between two reads
    shows the same."""
    now_ms = scope.io.now_ms()
    covering = refill(found[by], now_ms)
    gone = _retired(found[address], now_ms)
    writes: list[Addressed] = [
        (by, Refill(scope.io.operation_id(), now_ms, found[by], covering)),
        (address, Refill(scope.io.operation_id(), now_ms, found[address], gone)),
    ]
    await send_together(scope, writes)
