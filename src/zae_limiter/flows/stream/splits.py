"""Splitting buckets ahead of need, and bringing all items of a bucket to the same shard count.

Shard 0 goes first, because the others follow its count. Every split is the transaction of
`flows.shards.items`: no token is made or lost, whichever splits a client makes meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from ...core.bucket import BucketAddress, refill
from ...core.changes import BucketChange, ItemActivity
from ...core.exceptions import StorageUnavailable, StoredDataError
from ...core.planner import gains_by_a_split
from ...core.validation import WCU
from ..scope import Scope
from ..shards.items import read_all, split_shard

logger = logging.getLogger("zae_limiter")

# How much of its own write allowance an item has used that is split.
BUSY_PCT = 80
# As many as lead to the most shards, and some in which a race is lost.
_MAX_ROUNDS = 8


async def split_busy_buckets(
    scope: Scope, changes: Iterable[BucketChange], active: Mapping[BucketAddress, ItemActivity]
) -> int:
    """Split the buckets that are written too often or have begun to be split, and return how many
    splits were made. A bucket that cannot be split now is split later, or by a client."""
    splits = 0
    for home, count in plan_splits(changes, active).items():
        try:
            splits += await _split_up_to(scope, home, count)
        except (StorageUnavailable, StoredDataError) as error:
            logger.warning("%s was not split into %d: %s", home, count, error)
        except Exception:
            # Raised, it would stop the stream for everybody, because of one item.
            logger.exception("%s was not split into %d", home, count)
    return splits


def plan_splits(
    changes: Iterable[BucketChange], active: Mapping[BucketAddress, ItemActivity]
) -> dict[BucketAddress, int]:
    """Return the shard counts that buckets should come to, where they are not there yet: those that
    their first items were split to and not merged again, and twice that of a busy item."""
    counts: dict[BucketAddress, int] = {}
    for change in changes:
        before, after = change.before, change.after
        if change.address.shard or before is None or after is None:
            continue
        if after.shard_count > before.shard_count:
            counts[change.address] = after.shard_count
        elif after.shard_count < before.shard_count:
            counts.pop(change.address, None)
    for address, activity in active.items():
        if is_written_often(activity):
            count = 2 * activity.image.shard_count
            counts[address.home] = max(count, counts.get(address.home, 1))
    return counts


def is_written_often(activity: ItemActivity) -> bool:
    """Whether an item has used most of what it may be written, as of its last write, and two items
    could be written more often."""
    image = refill(activity.image, activity.at_ms)
    allowance = image.cells.get(WCU)
    if allowance is None:
        return False
    most_milli = image.ceiling_milli(WCU)
    used_milli = most_milli - allowance.tokens_milli
    is_used_up = 100 * used_milli >= BUSY_PCT * most_milli
    return is_used_up and gains_by_a_split(image, activity.counts.consumed_milli)


async def _split_up_to(scope: Scope, home: BucketAddress, count: int) -> int:
    splits = 0
    for _ in range(_MAX_ROUNDS):
        found = await read_all(scope, home)
        waiting = sorted(a for a, bucket in found.items() if bucket.shard_count < count)
        if not waiting:
            break
        for address in waiting:
            splits += await split_shard(scope, address, found[address])
    return splits
