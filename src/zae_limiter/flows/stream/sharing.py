"""Sharing out the shards of a stream among its readers.

A reader that came later asks those that have more shards than it has. They give a shard up
between two batches, so that nothing is read twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ...ports.stream import Checkpoint


def shards_to_ask_for(owner: str, known: Mapping[str, Checkpoint], now_ms: int) -> list[str]:
    """Return the shards that a reader asks others for: as many as leave no other reader with two
    more than it has. A shard that was asked for counts as had already."""
    leased = {shard_id: c for shard_id, c in known.items() if c.lease_ends_ms > now_ms}
    had = Counter(each.wanted_by or each.owner for each in leased.values())
    free = {shard_id: c.owner for shard_id, c in sorted(leased.items()) if not c.wanted_by}
    asked: list[str] = []
    while free:
        shard_id = max(free, key=lambda each: had[free[each]])
        richest = free.pop(shard_id)
        if richest == owner or had[richest] < had[owner] + 2:
            break
        asked.append(shard_id)
        had[richest] -= 1
        had[owner] += 1
    return asked
