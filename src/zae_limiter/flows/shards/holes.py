"""Missing parts of a bucket: made by a split, or anew where an item was deleted.

An item that was deleted though its siblings stayed leaves a hole. It is made anew, full, as a
bucket is that was deleted as a whole. Two clients that fill overlapping holes would make tokens,
so item 0 is the lock: each filling refills it in the same transaction, under the condition that
nobody else has since the hole was seen. Where item 0 itself is missing it is made first, which
only one client can.
"""

from __future__ import annotations

from ...core.bucket import Bucket, BucketAddress, refill
from ...core.exceptions import StorageUnavailable
from ...core.shards import MAX_SHARDS, holes, in_force
from ...core.writes import Create, Refill
from ..acquire.send import send, step_back
from ..scope import Scope
from .items import Items, holder, parts_of, read_all, send_together, split_shard

# As many splits as lead to the last shard, and some races that are lost on the way.
_MAX_ATTEMPTS = 8
# Clocks that are further apart are not waited for.
_SHORT_WAIT_MS = 50


async def read_whole(scope: Scope, home: BucketAddress) -> dict[BucketAddress, Bucket]:
    """Read every item of the bucket, and make those anew that were deleted though others stayed.
    An empty mapping when nothing is left of the bucket."""
    for lost in range(_MAX_ATTEMPTS):
        found = await read_all(scope, home)
        if not found or not holes(_counts(found)):
            break
        if not await _fill_holes(scope, home):
            await step_back(scope, lost)
    return found


async def make_shard(scope: Scope, address: BucketAddress) -> tuple[BucketAddress, Bucket] | None:
    """The item that holds a shard's part, where there is no item of that shard. If item 0 has been
    split further than that item, it is split first; unless it is written too often to be split.
    None when there is nothing of the bucket at all."""
    for lost in range(_MAX_ATTEMPTS + 1):
        found = await read_whole(scope, address.home)
        if not found:
            return None
        source = holder(address.shard, found)
        if source is None or address.home not in found:
            await step_back(scope, lost)
            continue
        is_split = found[source].shard_count >= found[address.home].shard_count
        if source == address or is_split or lost == _MAX_ATTEMPTS:
            return source, found[source]
        await split_shard(scope, source, found[source])
    raise StorageUnavailable(f"{address} is deleted again and again")


def _counts(found: Items) -> dict[int, int]:
    return {address.shard: bucket.shard_count for address, bucket in found.items()}


async def _fill_holes(scope: Scope, home: BucketAddress) -> bool:
    """Make anew what is missing. False when another client changed the bucket meanwhile."""
    # Item 0 is read before the items among which a hole is looked for. Without this, a hole that
    # another client fills between two reads would be filled twice.
    before, found = await _read_every(scope, home), await _read_every(scope, home)
    counts = in_force(parts_of(found))
    if not counts or counts != in_force(parts_of(before)):
        return False
    io, first = scope.io, before.get(home)
    like = found[home._replace(shard=min(counts))]
    now_ms = io.now_ms() if first is None else await _later_than(scope, first.refilled_at_ms)
    made = {
        home._replace(shard=shard): _full_item(like, shard, count, now_ms)
        for shard, count in holes(counts).items()
    }
    if first is None:
        await send(scope, home, Create(io.operation_id(), now_ms, made[home]))
        return True
    lock = Refill(io.operation_id(), now_ms, first, refill(first, now_ms))
    creations = [(a, Create(io.operation_id(), now_ms, item)) for a, item in made.items()]
    return await send_together(scope, [(home, lock), *creations])


async def _read_every(scope: Scope, home: BucketAddress) -> dict[BucketAddress, Bucket]:
    return await scope.store.buckets.read([home._replace(shard=s) for s in range(MAX_SHARDS)])


async def _later_than(scope: Scope, refilled_at_ms: int) -> int:
    """Return a time at which a refill moves the refill time: two fillings that are planned on the
    same refill time must not both succeed."""
    early_ms = refilled_at_ms + 1 - scope.io.now_ms()
    if 0 < early_ms <= _SHORT_WAIT_MS:
        await scope.io.pause(early_ms / 1000)
    return max(scope.io.now_ms(), refilled_at_ms + 1)


def _full_item(like: Bucket, shard: int, count: int, now_ms: int) -> Bucket:
    item = like._replace(
        refilled_at_ms=now_ms, shard=shard, shard_count=count, recent=(), acquires=0
    )
    cells = {
        name: cell._replace(tokens_milli=item.ceiling_milli(name), consumed_milli=0, remainder=0)
        for name, cell in like.cells.items()
    }
    return item._replace(cells=cells)
