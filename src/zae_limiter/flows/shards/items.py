"""The items of a bucket that was split into shards, because one item was written too often.

The items of a bucket are a partition of it: each holds the part that its own shard count
says. A shard is made by splitting the one it comes from, in one step, so that no token is
ever made or lost, whatever a client believes the count to be.

Only items of the generation that item 0 has are in force (`core.shards.in_force`). Remnants of
other generations are neither read nor written, and a split puts new items in their place.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...core.bucket import FIRST_ITEM_OUTLASTS_S, Bucket, BucketAddress, split
from ...core.exceptions import StorageUnavailable
from ...core.shards import MAX_SHARDS, Part, in_force, new_generation, owner, sums_to_one
from ...core.writes import Create, Granted, Refill, Refused
from ..acquire.send import Addressed, send_all
from ..scope import Scope

Items = Mapping[BucketAddress, Bucket]
# Often enough to prolong item 0 in time, however long configuration may be cached.
_LONGEST_MS = FIRST_ITEM_OUTLASTS_S * 1000 // 4


def is_upkeep_due(scope: Scope, home: BucketAddress) -> bool:
    """Return whether this process uses a split bucket and has not looked at all of it for a TTL."""
    local = scope.local
    known = local.splits.get(home)
    if known is None:
        return False
    since_ms, now_ms = known.looked_at_ms, scope.io.now_ms()
    rest_ms = min(local.config_cache.ttl_ms, _LONGEST_MS)
    # A timestamp in the future is stale: the clock stepped back.
    return since_ms is None or not since_ms <= now_ms < since_ms + rest_ms


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
    """Read every item of the bucket that is in force, consistently: a split between two reads
    would show tokens twice or not at all."""
    counts: dict[int, int] = {}
    for _ in range(MAX_SHARDS):
        before, found = counts, await read_known(scope, home)
        counts = in_force(parts_of(found))
        # Counts that are the same twice mean no split under way: an item has been deleted.
        if not counts or sums_to_one(counts.values()) or counts == before:
            break
    scope.local.settle_split(home, max(counts.values(), default=1))
    return {address: bucket for address, bucket in found.items() if address.shard in counts}


def parts_of(found: Items) -> dict[int, Part]:
    """Return the part that each item says it holds, by shard."""
    return {address.shard: bucket.part for address, bucket in found.items()}


def without_remnants(found: Items) -> dict[BucketAddress, Bucket]:
    """Return the items of any number of buckets that are in force."""
    parts: dict[BucketAddress, dict[int, Part]] = {}
    for address, bucket in found.items():
        parts.setdefault(address.home, {})[address.shard] = bucket.part
    counts = {home: in_force(of_bucket) for home, of_bucket in parts.items()}
    return {a: bucket for a, bucket in found.items() if a.shard in counts[a.home]}


async def read_known(scope: Scope, home: BucketAddress) -> dict[BucketAddress, Bucket]:
    """Read item 0 and all items that the bucket is known to have, also from what is read. Remnants
    are among them."""
    found: dict[BucketAddress, Bucket] = {}
    count = 0
    while count < scope.local.shard_count(home):
        known = scope.local.shard_count(home)
        addresses = [home._replace(shard=shard) for shard in range(count, known)]
        more = await scope.store.buckets.read(addresses)
        # Item 0 first: it tells whether the others are in force.
        for address in sorted(more):
            scope.local.remember(address, Refused(more[address]))
        found |= more
        count = known
    return found


async def split_shard(scope: Scope, address: BucketAddress, bucket: Bucket) -> bool:
    """Split an item in two. False when another client was faster."""
    io = scope.io
    lower, upper = split(bucket, new_generation(io.entropy()))
    return await send_together(
        scope,
        [
            (address, Refill(io.operation_id(), io.now_ms(), bucket, lower)),
            (address._replace(shard=upper.shard), Create(io.operation_id(), io.now_ms(), upper)),
        ],
    )


async def send_together(scope: Scope, writes: list[Addressed]) -> bool:
    """Change several items of a bucket in one transaction. False when another client was faster."""
    try:
        outcomes = await send_all(scope, writes)
    except StorageUnavailable as error:
        if error.ambiguous or not error.retryable:
            raise
        # Other clients wrote to one of the items at the very same time: that is no outage yet.
        return False
    return all(isinstance(outcome, Granted) for outcome in outcomes)


def holder(shard: int, found: Items) -> BucketAddress | None:
    """Return the item that holds a shard's part; None when that part is missing."""
    counts = {address.shard: bucket.shard_count for address, bucket in found.items()}
    held_by = owner(shard, counts)
    return next((address for address in found if address.shard == held_by), None)
