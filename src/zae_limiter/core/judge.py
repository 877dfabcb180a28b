"""The judge decides whether a request fits a bucket, and if not, when it will.

`acquire`, `consume`, `available` and `time_until_available` all ask the judge. Times are exact: on
an otherwise idle bucket, a request that waits as long as the decision says succeeds, and one that
waits a millisecond less does not.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .bucket import Bucket, refill, time_to_fill_ms, time_to_gain_ms
from .limit import MILLI, LimitSet
from .models import LimitStatus
from .validation import WCU

NEVER = math.inf


class Decision(NamedTuple):
    """A decision says how long each limit makes the request wait, in milliseconds; 0 is now."""

    waits_ms: Mapping[str, float]

    @property
    def fits(self) -> bool:
        """True when the request need not wait."""
        return not any(self.waits_ms.values())

    @property
    def wait_ms(self) -> float:
        """The time until the whole request fits; infinite when some part never will."""
        return max(self.waits_ms.values(), default=0)


def judge(bucket: Bucket, takes_milli: Mapping[str, int]) -> Decision:
    """Decide on a bucket that has been brought up to date (`bucket.at`).

    A limit of which nothing is asked never blocks, even in debt.
    """
    waits_ms = {}
    for name, amount_milli in takes_milli.items():
        if amount_milli > 0 and name != WCU:
            waits_ms[name] = _wait_ms(bucket, name, amount_milli)
    return Decision(waits_ms)


def _wait_ms(bucket: Bucket, name: str, amount_milli: int) -> float:
    cell = bucket.cells[name]
    if amount_milli <= cell.tokens_milli:
        return 0
    if amount_milli > bucket.ceiling_milli(name):
        return NEVER
    return time_to_gain_ms(bucket, name, amount_milli - cell.tokens_milli)


def judge_shards(shards: Sequence[Bucket], takes_milli: Mapping[str, int]) -> Decision:
    """Decide on a bucket that is spread over several items, taken together."""
    if len(shards) == 1:
        return judge(shards[0], takes_milli)
    asked = {name: n for name, n in takes_milli.items() if n > 0 and name != WCU}
    return Decision({name: _shards_wait_ms(shards, name, n) for name, n in asked.items()})


def _shards_wait_ms(shards: Sequence[Bucket], name: str, amount_milli: int) -> float:
    if amount_milli <= _held_milli(shards, name, 0):
        return 0
    if amount_milli > sum(shard.ceiling_milli(name) for shard in shards):
        return NEVER
    # Each shard stops at its own ceiling, so the sum is no straight line: search for the moment.
    until_full_ms = max(time_to_fill_ms(shard, name) for shard in shards)
    return bisect_left(
        range(until_full_ms),
        amount_milli,
        key=lambda elapsed_ms: _held_milli(shards, name, elapsed_ms),
    )


def _held_milli(shards: Sequence[Bucket], name: str, elapsed_ms: int) -> int:
    """Return the sum of what the shards will hold."""
    then = (refill(shard, shard.refilled_at_ms + elapsed_ms) for shard in shards)
    return sum(shard.cells[name].tokens_milli for shard in then)


def statuses(
    entity_id: str,
    resource: str,
    shards: Sequence[Bucket],
    limits: LimitSet,
    takes_milli: Mapping[str, int],
) -> list[LimitStatus]:
    """Return the status of each limit towards the request, also of limits that it does not ask."""
    waits_ms = judge_shards(shards, takes_milli).waits_ms
    return [
        LimitStatus(
            entity_id,
            resource,
            limit.name,
            limit,
            available=sum(shard.cells[limit.name].tokens_milli for shard in shards) // MILLI,
            requested=takes_milli.get(limit.name, 0) // MILLI,
            exceeded=waits_ms.get(limit.name, 0) > 0,
            retry_after_seconds=waits_ms.get(limit.name, 0) / 1000,
        )
        for limit in limits.limits
    ]
