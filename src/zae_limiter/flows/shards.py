"""Buckets that are spread over several items, because one was written too often.

The items of a bucket are a partition of it: each holds the part that its own shard count
says. A shard is made by splitting the one it comes from, in one step, so that no token is
ever made or lost, whatever a client believes the count to be.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..core.composite import Bucket, BucketAddress, split
from ..core.exceptions import StorageUnavailable
from ..core.shards import MAX_SHARDS, is_whole, origin, share
from ..core.writes import Create, Granted, Refill, Refused
from .scope import Scope
from .send import send, send_all

_MAX_ATTEMPTS = 16


def draw(scope: Scope, home: BucketAddress) -> BucketAddress:
    """One of the items that the bucket is known to have, at random."""
    count = scope.shard_count(home)
    return home if count == 1 else home._replace(shard=scope.io.entropy() % count)


def others(scope: Scope, address: BucketAddress, how_many: int) -> list[BucketAddress]:
    """Some other items of the bucket, beginning anywhere."""
    count = scope.shard_count(address)
    start = scope.io.entropy() % count
    shards = [(start + step) % count for step in range(count)]
    return [address._replace(shard=s) for s in shards if s != address.shard][:how_many]


async def read_all(scope: Scope, home: BucketAddress) -> dict[BucketAddress, Bucket]:
    """Every item of the bucket, as they are together: a split while they are being read
    would show tokens twice or not at all."""
    for _ in range(_MAX_ATTEMPTS):
        found = await _read_known(scope, home)
        if not found or is_whole(bucket.shard_count for bucket in found.values()):
            return found
    return found


async def _read_known(scope: Scope, home: BucketAddress) -> dict[BucketAddress, Bucket]:
    found: dict[BucketAddress, Bucket] = {}
    count = 0
    while count < scope.shard_count(home):
        known = scope.shard_count(home)
        addresses = [home._replace(shard=shard) for shard in range(count, known)]
        more = await scope.store.buckets.read(addresses)
        for address, bucket in more.items():
            scope.remember(address, Refused(bucket))
        found |= more
        count = known
    return found


async def split_shard(scope: Scope, address: BucketAddress, bucket: Bucket) -> bool:
    """Split an item in two. False when somebody was faster."""
    lower, upper = split(bucket)
    io = scope.io
    outcomes = await send_all(
        scope,
        [
            (address, Refill(io.operation_id(), io.now_ms(), bucket, lower)),
            (address._replace(shard=upper.shard), Create(io.operation_id(), io.now_ms(), upper)),
        ],
    )
    return all(isinstance(outcome, Granted) for outcome in outcomes)


async def make_shard(scope: Scope, address: BucketAddress) -> Bucket | None:
    """The item at an address where there is none: made by splitting the one it comes from.

    None when there is nothing of the bucket at all.
    """
    for _ in range(_MAX_ATTEMPTS):
        found = await read_all(scope, address.home)
        if address in found or not found:
            return found.get(address)
        source = _nearest(address, found)
        if source is None or found[source].shard_count > address.shard:
            await _fill_hole(scope, address, next(iter(found.values())))
        else:
            await split_shard(scope, source, found[source])
    raise StorageUnavailable(f"{address} is too contended to be split")


def _nearest(address: BucketAddress, found: Mapping[BucketAddress, Bucket]) -> BucketAddress | None:
    """The item that exists and that this one comes from, directly or not."""
    while address.shard:
        address = address._replace(shard=origin(address.shard))
        if address in found:
            return address
    return None


async def _fill_hole(scope: Scope, address: BucketAddress, like: Bucket) -> None:
    """An item that was deleted, though its siblings stayed, comes back full."""
    count = min(MAX_SHARDS, like.shard_count)
    cells = {
        name: cell._replace(
            tokens_milli=share(cell.capacity_milli, address.shard, count),
            consumed_milli=0,
            remainder=0,
        )
        for name, cell in like.cells.items()
    }
    io = scope.io
    item = like._replace(
        cells=cells, refilled_at_ms=io.now_ms(), shard=address.shard, recent=(), acquires=0
    )
    await send(scope, address, Create(io.operation_id(), io.now_ms(), item))
