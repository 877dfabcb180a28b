"""The upkeep of a split bucket, by each process that uses it, once in the configuration's TTL.

Item 0 is seldom the item that a process writes to. So each process looks at all items from time to
time: whether its generation is still in force, whether parts are missing or overlap, and whether
the load that the bucket was split for is gone.
"""

from __future__ import annotations

from ...core.bucket import FIRST_ITEM_OUTLASTS_S, WCU_CELL, BucketAddress
from ...core.planner import Intent, plan_restamp
from ...core.shards import MAX_SHARDS, sums_to_one
from ...core.validation import WCU
from ..acquire.charge import Progress
from ..acquire.item import refresh_limits
from ..acquire.send import send
from ..scope import Scope
from .debt import is_uneven, level_debt
from .holes import read_whole
from .items import Items, read_known, without_remnants
from .known_split import KnownSplit
from .merge import merge_down, retire_covered

# The shortest time over which the load is measured. Without it, a short pause would merge items.
_MEASURED_FOR_MS = 10_000
# The part of its write allowance that an item may use after siblings are merged. It is well below
# the part at which items are split, so that a steady load does not split and merge in turn.
_QUIET_PCT = 25


async def keep_up(scope: Scope, progress: Progress) -> None:
    """Look at all items of a split bucket, and mend what is wrong with them."""
    home = progress.charge.home
    known = scope.local.splits.get(home)
    if known is None:
        return
    now_ms = scope.io.now_ms()
    # Before the first call, so that other tasks of this process do not look as well.
    scope.local.splits.put(home, known._replace(looked_at_ms=now_ms))
    try:
        await _mend(scope, progress)
    except BaseException:
        scope.local.splits.put(home, known)
        raise


async def _mend(scope: Scope, progress: Progress) -> None:
    home = progress.charge.home
    stored = await read_known(scope, home)
    await retire_covered(scope, stored)
    found: Items = without_remnants(stored)
    if not sums_to_one(bucket.shard_count for bucket in found.values()):
        found = await read_whole(scope, home)
    scope.local.settle_split(home, max((b.shard_count for b in found.values()), default=1))
    known = scope.local.splits.get(home)
    if known is None or home not in found:
        return
    fingerprint = progress.charge.limits.fingerprint
    if any(bucket.fingerprint != fingerprint for bucket in found.values()):
        # Without this, a merge could put stale limits in force again.
        await refresh_limits(scope, progress)
    intent = progress.charge.intent
    await _prolong_first(scope, home, intent, found)
    if is_uneven(found, scope.io.now_ms()):
        await level_debt(scope, home)
    count = _enough_shards(known, found, scope.io.now_ms())
    if count is not None:
        await merge_down(scope, home, intent, count)
        _measure(scope, home, found)
    elif known.measured_at_ms is None:
        _measure(scope, home, found)


async def _prolong_first(scope: Scope, home: BucketAddress, intent: Intent, found: Items) -> None:
    """Let item 0 outlast the items that are in use."""
    first, io = found[home], scope.io
    half_ms = FIRST_ITEM_OUTLASTS_S * 500
    if first.is_expired(io.now_ms() + half_ms):
        await send(scope, home, plan_restamp(intent, first, io.operation_id(), io.now_ms()))


def _measure(scope: Scope, home: BucketAddress, found: Items) -> None:
    known = scope.local.splits.get(home)
    if known is not None:
        measured = known._replace(
            written_milli=_written_milli(found), measured_at_ms=scope.io.now_ms()
        )
        scope.local.splits.put(home, measured)


def _written_milli(found: Items) -> dict[int, int]:
    return {
        address.shard: bucket.cells[WCU].consumed_milli
        for address, bucket in found.items()
        if WCU in bucket.cells
    }


def _enough_shards(known: KnownSplit, found: Items, now_ms: int) -> int | None:
    """Return how many shards suffice for the writes since the last measurement; None when that
    was too short ago to tell."""
    if known.measured_at_ms is None or now_ms < known.measured_at_ms + _MEASURED_FOR_MS:
        return None
    seen_milli = known.written_milli
    used_milli = sum(
        amount_milli - seen_milli.get(shard, 0)
        for shard, amount_milli in _written_milli(found).items()
    )
    elapsed_ms = now_ms - known.measured_at_ms
    allowed_milli = WCU_CELL.rate.least_gain_milli(0, elapsed_ms) * _QUIET_PCT // 100
    count = 1
    while count * allowed_milli < used_milli and count < MAX_SHARDS:
        count *= 2
    return count
