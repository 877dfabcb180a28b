"""How many writes a hot key comes to, by a formula.

A process has one write in flight for each item; who comes meanwhile goes with the next. So after
a write the next one leaves at once if anybody came, and with the first to come if nobody did.
"""

from __future__ import annotations

from math import exp

from zae_limiter.core.shards import MAX_SHARDS

from .table import IN_REGION, PARTITION_WCU_PER_S

LATENCY_S = (IN_REGION.least_us + IN_REGION.most_us) / 2 / 1_000_000


def item_writes_per_s(acquires_per_s: float, processes: int, shards: int) -> float:
    """What each item of a bucket is written, if nobody loses a race. Every process uses all."""
    lane_per_s = acquires_per_s / processes / shards
    idle_s = exp(-lane_per_s * LATENCY_S) / lane_per_s
    return processes / (LATENCY_S + idle_s)


def shards_needed(acquires_per_s: float, processes: int) -> int | None:
    """Into how many items a bucket has to be split for each to bear its writes; None when even
    the most are too few."""
    shards = 1
    while item_writes_per_s(acquires_per_s, processes, shards) > PARTITION_WCU_PER_S:
        shards *= 2
        if shards > MAX_SHARDS:
            return None
    return shards
