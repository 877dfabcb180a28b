"""The writes that charge all levels of a request together, split buckets included.

They are planned on the items as this process last saw them. A request is refused only by items that
were read since it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...core.bucket import Bucket, BucketAddress
from ...core.exceptions import StorageUnavailable
from ...core.judge import judge_shards
from ...core.ledger import Entry
from ...core.planner import Crowded, Short
from ...core.validation import WCU
from ...core.writes import Absent, Refused
from ..acquire.charge import Progress, current_items
from ..acquire.item import is_damaged, refresh_limits, set_right
from ..acquire.marks import new_operation
from ..acquire.one_transaction import plan_whole, tell_standing
from ..acquire.refusals import AcquireRefused
from ..acquire.send import Addressed
from ..coalesce.batch import read_items
from ..config.registration import confirm_registration
from ..scope import Scope
from ..shards.items import Items, draw, is_upkeep_due
from ..shards.multi_take import choose_parts, plan_part
from ..shards.upkeep import keep_up

# A transaction of DynamoDB has at most 100 actions, and the receipt is one of them.
_MAX_WRITES = 99


class JointPlan(NamedTuple):
    """A joint plan holds the writes that charge all levels, and what they take."""

    writes: list[Addressed]
    entries: list[Entry]


async def plan_joint(scope: Scope, levels: Sequence[Progress], *, afresh: bool) -> JointPlan:
    """Plan the writes for all levels. Raises `AcquireRefused`.

    `afresh`: read all items, whatever this process remembers.
    """
    found = await _items(scope, levels, afresh)
    plan = await _plan_all(scope, levels, found)
    if plan is None and not afresh:
        found = await _items(scope, levels, afresh=True)
        plan = await _plan_all(scope, levels, found)
    if plan is None:
        raise AcquireRefused(await tell_standing(scope, levels, found))
    if len(plan.writes) > _MAX_WRITES:
        reason = f"the charge takes from more than {_MAX_WRITES} bucket items"
        raise StorageUnavailable(reason, retryable=False)
    return plan


async def _items(
    scope: Scope, levels: Sequence[Progress], afresh: bool
) -> dict[BucketAddress, Bucket]:
    found: dict[BucketAddress, Bucket] = {}
    for level in levels:
        found |= await _items_of(scope, level, afresh)
    return found


async def _items_of(scope: Scope, level: Progress, afresh: bool) -> Items:
    """Return the items of a level's bucket: none if there is no bucket yet."""
    local, home = scope.local, level.charge.home
    if is_upkeep_due(scope, home):
        await keep_up(scope, level)
    if local.shard_count(home) == 1:
        image = local.image(home)
        if afresh or image is None or not level.charge.speculative or is_damaged(scope, image):
            image = await _read(scope, home)
        if local.shard_count(home) == 1:
            return {} if image is None else {home: image}
    found = await read_items(scope, home)
    if not found:
        # The bucket was deleted meanwhile, so it starts anew.
        local.splits.discard(home)
    return found


async def _read(scope: Scope, home: BucketAddress) -> Bucket | None:
    before = scope.local.image(home)
    bucket = (await scope.store.buckets.read([home])).get(home)
    scope.local.remember(home, Absent() if bucket is None else Refused(bucket))
    if bucket is not None:
        return await set_right(scope, home, bucket)
    if before is not None:
        # An item that goes before its time may have been purged with its namespace.
        await confirm_registration(scope, is_cached=before.is_expired(scope.io.now_ms()))
    return None


async def _plan_all(scope: Scope, levels: Sequence[Progress], found: Items) -> JointPlan | None:
    """Plan a write for each level, or several for a split bucket; None when a level is short."""
    joint = JointPlan([], [])
    for level in levels:
        items = {a: bucket for a, bucket in found.items() if a.home == level.charge.home}
        fingerprint = level.charge.limits.fingerprint
        if any(bucket.fingerprint != fingerprint for bucket in items.values()):
            await refresh_limits(scope, level)
        is_split = scope.local.shard_count(level.charge.home) > 1
        parts = _split_parts(scope, level, items) if is_split else _whole_part(scope, level, items)
        if parts is None:
            return None
        for entry, addressed in parts:
            joint.entries.append(entry)
            joint.writes.append(addressed)
    return joint


_Parts = Iterable[tuple[Entry, Addressed]]


def _whole_part(scope: Scope, level: Progress, items: Items) -> _Parts | None:
    """Take all from the only item, or from a new bucket."""
    charge, home = level.charge, level.charge.home
    level.operation = new_operation(scope, home)
    write = plan_whole(level, items.get(home))
    if isinstance(write, Short | Crowded):
        return None
    entry = charge.entry(home, charge.intent.takes_milli, charge.intent.acquires)
    return [(entry, (home, write))]


def _split_parts(scope: Scope, level: Progress, items: Items) -> _Parts | None:
    """Take from as few items as have enough together."""
    charge = level.charge
    takes_milli = charge.intent.takes_milli
    shards = current_items(charge, list(items.values()), level.as_of_ms)
    if not judge_shards(shards, takes_milli).fits:
        return None
    parts = choose_parts(level, items, 0)
    if not any(amount for name, amount in takes_milli.items() if name != WCU):
        drawn = draw(scope, charge.home)
        parts = {drawn if drawn in items else min(items): {}}
    planned: list[tuple[Entry, Addressed]] = []
    for address, part_milli in parts.items():
        entry = charge.entry(address, part_milli, 0 if planned else charge.intent.acquires)
        write = plan_part(level, items[address], entry, new_operation(scope, address))
        planned.append((entry, (address, write)))
    return planned or None
