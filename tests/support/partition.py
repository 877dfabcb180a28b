"""This module checks that the items of a bucket are a partition of it, whatever befell them."""

from __future__ import annotations

from collections.abc import Iterable

from zae_limiter.core.bucket import Bucket
from zae_limiter.core.shards import in_force, sums_to_one
from zae_limiter.core.validation import FORGOTTEN, SET_BACK, WCU


def assert_partition(items: Iterable[Bucket]) -> list[Bucket]:
    """Return the items that are in force. Their parts must sum to exactly one, and so their
    capacities to that of the bucket. A bucket of which nothing is left is whole."""
    found = {bucket.shard: bucket for bucket in items}
    counts = in_force({shard: bucket.part for shard, bucket in found.items()})
    assert not counts or sums_to_one(counts.values()), f"{counts} of {found}"
    parts = [found[shard] for shard in counts]
    for name in set().union(*(bucket.cells for bucket in parts)) - {WCU, FORGOTTEN, SET_BACK}:
        held = [bucket for bucket in parts if name in bucket.cells]
        capacities_milli = {bucket.cells[name].capacity_milli for bucket in held}
        if len(held) == len(parts) and len(capacities_milli) == 1:
            ceilings_milli = sum(bucket.ceiling_milli(name) for bucket in held)
            assert {ceilings_milli} == capacities_milli, f"{name} of {found}"
    return parts
