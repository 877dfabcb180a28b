"""The items of a bucket that was split into shards, because one item was written too often.

The items of a bucket are a partition of it: each holds the part that its own shard count
says. A shard is made by splitting the one it comes from, in one step, so that no token is
ever made or lost, whatever a client believes the count to be.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...core.bucket import Bucket, BucketAddress, split
from ...core.exceptions import StorageUnavailable
from ...core.shards import MAX_SHARDS, free_count, owner, sums_to_one
from ...core.writes import Create, Granted, Refill, Refused
from ..acquire.send import Addressed, send, send_all
from ..scope import Scope

# As many splits as lead to the last shard, and some races that are lost on the way.
_MAX_ATTEMPTS = 8
Items = Mapping[BucketAddress, Bucket]


def draw(scope: Scope, home: BucketAddress) -> BucketAddress:
    """The item that this process keeps to, among those that the bucket is known to have. So the
    writes of one process meet, and those of several processes seldom do."""
    count = scope.local.shard_count(home)
    if count == 1:
        return home
    preferred = scope.local.preferred_shards.get(home.home)
    if preferred is None:
        preferred = scope.io.entropy() % MAX_SHARDS
        scope.local.preferred_shards.put(home.home, preferred)
    return home._replace(shard=preferred % count)


def prefer(scope: Scope, address: BucketAddress) -> None:
    """Keep to this item from now on."""
    scope.local.preferred_shards.put(address.home, address.shard)


def others(scope: Scope, address: BucketAddress, how_many: int) -> list[BucketAddress]:
    """Some other items of the bucket, beginning at a random one."""
    count = scope.local.shard_count(address)
    start = scope.io.entropy() % count
    shards = [(start + step) % count for step in range(count)]
    return [address._replace(shard=s) for s in shards if s != address.shard][:how_many]


async def read_all(scope: Scope, home: BucketAddress) -> dict[BucketAddress, Bucket]:
    """Read every item of the bucket, consistently: a split between two reads would show tokens
    twice or not at all."""
    counts: dict[int, int] = {}
    for _ in range(MAX_SHARDS):
        before, found = counts, await _read_known(scope, home)
        counts = _counts(found)
        # Counts that are the same twice mean no split under way: an item has been deleted.
        if not found or sums_to_one(counts.values()) or counts == before:
            break
    return found


def _counts(found: Items) -> dict[int, int]:
    return {address.shard: bucket.shard_count for address, bucket in found.items()}


async def _read_known(scope: Scope, home: BucketAddress) -> dict[BucketAddress, Bucket]:
    found: dict[BucketAddress, Bucket] = {}
    count = 0
    while count < scope.local.shard_count(home):
        known = scope.local.shard_count(home)
        addresses = [home._replace(shard=shard) for shard in range(count, known)]
        more = await scope.store.buckets.read(addresses)
        for address, bucket in more.items():
            scope.local.remember(address, Refused(bucket))
        found |= more
        count = known
    return found


async def read_whole(scope: Scope, home: BucketAddress) -> dict[BucketAddress, Bucket]:
    """Read every item of the bucket, and make those anew that were deleted though others stayed.
    An empty mapping when nothing is left of the bucket."""
    found = await read_all(scope, home)
    for shard in range(scope.local.shard_count(home)):
        if found and owner(shard, _counts(found)) is None:
            await _fill_hole(scope, home._replace(shard=shard), found)
            found = await read_all(scope, home)
    return found


async def split_shard(scope: Scope, address: BucketAddress, bucket: Bucket) -> bool:
    """Split an item in two. False when another client was faster."""
    lower, upper = split(bucket)
    io = scope.io
    writes: list[Addressed] = [
        (address, Refill(io.operation_id(), io.now_ms(), bucket, lower)),
        (address._replace(shard=upper.shard), Create(io.operation_id(), io.now_ms(), upper)),
    ]
    try:
        outcomes = await send_all(scope, writes)
    except StorageUnavailable as error:
        if error.ambiguous or not error.retryable:
            raise
        # Other clients wrote to one of the items at the very same time: that is no outage yet.
        return False
    return all(isinstance(outcome, Granted) for outcome in outcomes)


async def make_shard(scope: Scope, address: BucketAddress) -> tuple[BucketAddress, Bucket] | None:
    """The item at an address where there is none, made by splitting the one it comes from; or
    that one itself, if it is written too often to be split. None when there is nothing of the
    bucket at all."""
    for lost in range(_MAX_ATTEMPTS + 1):
        found = await read_all(scope, address.home)
        if not found:
            return None
        shard = owner(address.shard, _counts(found))
        if shard is None:
            await _fill_hole(scope, address, found)
            continue
        source = address._replace(shard=shard)
        if source == address or lost == _MAX_ATTEMPTS:
            return source, found[source]
        await split_shard(scope, source, found[source])
    raise StorageUnavailable(f"{address} is deleted again and again")


async def _fill_hole(scope: Scope, address: BucketAddress, found: Items) -> None:
    """Make an item anew, full, that was deleted though its siblings stayed."""
    like = next(iter(found.values()))
    count = free_count(address.shard, _counts(found))
    io = scope.io
    item = like._replace(
        refilled_at_ms=io.now_ms(), shard=address.shard, shard_count=count, recent=(), acquires=0
    )
    cells = {
        name: cell._replace(tokens_milli=item.ceiling_milli(name), consumed_milli=0, remainder=0)
        for name, cell in like.cells.items()
    }
    await send(scope, address, Create(io.operation_id(), io.now_ms(), item._replace(cells=cells)))
