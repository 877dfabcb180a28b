"""Taking what no single item of a bucket has from several at once."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.composite import Bucket, BucketAddress, at
from ..core.composite import take as taken_from
from ..core.exceptions import StorageUnavailable
from ..core.judge import judge_shards
from ..core.naming import WCU
from ..core.planner import stamped
from ..core.writes import Granted, Refill
from .charge import ONE_WRITE_MILLI, Charge, Shortage, Taken, shortage
from .scope import Scope
from .send import send_all
from .shards import read_all

_MAX_ATTEMPTS = 16
Items = Mapping[BucketAddress, Bucket]


async def withdraw(scope: Scope, charge: Charge) -> Taken | Shortage:
    """Charge the bucket as a whole, in one step over as many of its items as it takes."""
    home = charge.address.home
    for _ in range(_MAX_ATTEMPTS):
        found = await read_all(scope, home)
        now_ms = scope.io.now_ms()
        views = {a: at(b, charge.limits, now_ms, metered=True) for a, b in found.items()}
        shards = list(views.values())
        if not shards or not judge_shards(shards, charge.intent.takes_milli).fits:
            return shortage(charge, shards)
        if await _take_parts(scope, charge, found, views):
            return Taken(charge)
    raise StorageUnavailable(f"{home} is too contended")


def apportion(views: Items, takes_milli: Mapping[str, int]) -> dict[BucketAddress, dict[str, int]]:
    """Which item gives how much: the fullest first, so that few are needed."""
    parts: dict[BucketAddress, dict[str, int]] = {}
    for name, amount_milli in takes_milli.items():
        missing_milli = 0 if name == WCU else amount_milli
        for address in sorted(views, key=lambda a: -views[a].cells[name].tokens_milli):
            part_milli = min(missing_milli, max(0, views[address].cells[name].tokens_milli))
            if part_milli:
                parts.setdefault(address, {})[name] = part_milli
                missing_milli -= part_milli
    return parts


async def _take_parts(scope: Scope, charge: Charge, found: Items, views: Items) -> bool:
    io, intent = scope.io, charge.intent
    parts = apportion(views, intent.takes_milli)
    first = next(iter(parts))
    writes = []
    sent = []
    for address, part_milli in parts.items():
        acquires = intent.acquires if address == first else 0
        now = stamped(intent, views[address], io.now_ms())
        after = taken_from(now, {**part_milli, WCU: _spare_milli(now)}, acquires)
        write = Refill(io.operation_id(), io.now_ms(), found[address], after)
        writes.append((address, write))
        sent.append((write.operation, charge.entry(address, part_milli, acquires)))
    charge.sent = sent
    outcomes = await send_all(scope, writes)
    charge.sent = ()
    buckets = [outcome.bucket for outcome in outcomes if isinstance(outcome, Granted)]
    if len(buckets) < len(writes):
        return False
    charge.entries = [entry for _, entry in sent]
    charge.shards = buckets
    return True


def _spare_milli(bucket: Bucket) -> int:
    """One write, if the item has it to spare: nobody waits for an item's own allowance here."""
    return max(0, min(ONE_WRITE_MILLI, bucket.cells[WCU].tokens_milli))
