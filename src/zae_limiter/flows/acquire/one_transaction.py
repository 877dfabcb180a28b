"""All levels in one transaction, where one of them may be short.

To charge levels in parallel means to hold tokens of a parent for a request that its child may
refuse, and another child could be refused for them meanwhile. Here nothing is held: the items of
all levels are read, judged, and charged together or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...core.bucket import Bucket, BucketAddress, has_leapt
from ...core.exceptions import StorageUnavailable
from ...core.ledger import Entry
from ...core.planner import Crowded, Short, plan, plan_create
from ...core.writes import Granted, Outcome, Refused, Write
from ...ports.repository_protocol import StoreClosed
from ..scope import Scope
from .charge import Progress, Shortage, Taken, current_items, paying_if_spare, shortage
from .item import refresh_limits, restamp, set_right
from .send import Addressed, send_all, step_back

# Each lost race means that another client won it; a bound keeps it finite.
_MAX_ATTEMPTS = 8
_Found = dict[BucketAddress, Bucket]


async def charge_in_one_transaction(
    scope: Scope, levels: Sequence[Progress]
) -> Sequence[Taken | Shortage] | None:
    """Charge every level or none. None when they cannot go together: a bucket is split, or other
    clients were faster each time."""
    now_ms = scope.io.now_ms()
    for level in levels:
        level.address, level.as_of_ms = level.charge.home, now_ms
    for lost in range(_MAX_ATTEMPTS):
        found = await _read(scope, levels)
        if any(scope.local.shard_count(level.address) > 1 for level in levels):
            return None
        planned = await _plan_all(scope, levels, found)
        if planned is None:
            return await tell_standing(scope, levels, found)
        if await _send(scope, levels, planned):
            return [Taken(level) for level in levels]
        await step_back(scope, lost)
    return None


async def _read(scope: Scope, levels: Sequence[Progress]) -> _Found:
    found = await scope.store.buckets.read([level.address for level in levels])
    for address, bucket in found.items():
        scope.local.remember(address, Refused(bucket))
    return {address: await set_right(scope, address, bucket) for address, bucket in found.items()}


async def _plan_all(scope: Scope, levels: Sequence[Progress], found: _Found) -> list[Write] | None:
    """Plan a write for each level; None when one of them is short."""
    writes: list[Write] = []
    for level in levels:
        bucket = found.get(level.address)
        if bucket is not None and bucket.fingerprint != level.charge.limits.fingerprint:
            await refresh_limits(scope, level)
        level.operation = scope.io.operation_id()
        write = plan_whole(level, bucket)
        if isinstance(write, Short | Crowded):
            return None
        writes.append(write)
    return writes


def plan_whole(level: Progress, bucket: Bucket | None) -> Write | Short | Crowded:
    """Plan to take all that a level asks from one item, or from a new bucket."""
    intent = level.charge.intent
    if bucket is None:
        return plan_create(intent, level.operation, level.as_of_ms)
    return plan(paying_if_spare(intent, bucket), bucket, level.operation, level.as_of_ms)


async def tell_standing(
    scope: Scope, levels: Sequence[Progress], found: Mapping[BucketAddress, Bucket]
) -> list[Taken | Shortage]:
    """Tell how each level stands. A short one gets our limits, if it carries others."""
    outcomes: list[Taken | Shortage] = []
    for level in levels:
        charge = level.charge
        stored = {a: bucket for a, bucket in found.items() if a.home == charge.home}
        items = current_items(charge, list(stored.values()), level.as_of_ms)
        stands = shortage(level, items)
        outcomes.append(stands)
        if stands.wait_ms:
            for (address, bucket), item in zip(stored.items(), items, strict=False):
                other_limits = bucket.fingerprint != charge.limits.fingerprint
                if other_limits or has_leapt(bucket, item):
                    await restamp(scope, address, charge.intent, bucket)
    return outcomes


async def _send(scope: Scope, levels: Sequence[Progress], writes: Sequence[Write]) -> bool:
    """Carry out the writes; False when the items are not as they were seen."""
    addressed: list[Addressed] = []
    entries: list[Entry] = []
    for level, write in zip(levels, writes, strict=True):
        intent = level.charge.intent
        entry = level.charge.entry(level.address, intent.takes_milli, intent.acquires)
        addressed.append((level.address, write))
        entries.append(entry)
        level.sent = ((write.operation, entry),)
    try:
        outcomes: list[Outcome] = await send_all(scope, addressed)
    except (StorageUnavailable, StoreClosed) as error:
        for level in levels:
            level.give_up(error)
        if error.ambiguous or not error.retryable:
            raise
        # Other clients wrote to one of the items at the very same time: that is no outage yet.
        return False
    granted = [outcome.bucket for outcome in outcomes if isinstance(outcome, Granted)]
    is_charged = len(granted) == len(levels)
    for number, level in enumerate(levels):
        if is_charged:
            level.entries, level.shards = [entries[number]], [granted[number]]
        level.sent = ()
    return is_charged
