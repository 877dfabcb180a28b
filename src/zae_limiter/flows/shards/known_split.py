"""A known split: a bucket in several items, as a process last saw them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...core.bucket import Bucket, BucketAddress


class KnownSplit(NamedTuple):
    """The split of a bucket, as a process last saw it.

    `generation` is the one that item 0 had, and `shard_count` the most that an item of it had.
    `looked_at_ms`: when the process last read all items; None until it has.
    `written_milli`: the write allowance that each item had used by `measured_at_ms`, since it
    was made; from two readings follows how often the items are written.
    """

    shard_count: int
    generation: str
    looked_at_ms: int | None = None
    written_milli: Mapping[int, int] = {}
    measured_at_ms: int | None = None

    def is_in_force(self, address: BucketAddress, bucket: Bucket) -> bool:
        """Return whether an item belongs to this split."""
        return address.shard == 0 or bucket.generation == self.generation


def learned(known: KnownSplit | None, address: BucketAddress, bucket: Bucket) -> KnownSplit | None:
    """Return what is known after an item was seen. Only item 0 tells that a generation begins or
    ends; any item of the generation tells that it was split further."""
    if address.shard == 0 and bucket.shard_count == 1:
        return None
    if address.shard == 0 and (known is None or known.generation != bucket.generation):
        return KnownSplit(bucket.shard_count, bucket.generation)
    is_raised = known is not None and known.shard_count < bucket.shard_count
    if known is not None and is_raised and known.is_in_force(address, bucket):
        return known._replace(shard_count=bucket.shard_count)
    return known
