"""The images of a store in memory are its buckets themselves."""

from __future__ import annotations

from ...core.bucket import Bucket, BucketAddress
from .tables import Tables


class MemoryImages:
    """The buckets as they are. Nothing is kept twice, so no image can be stale."""

    def __init__(self, tables: Tables) -> None:
        self.get = tables.buckets.get

    def put(self, address: BucketAddress, bucket: Bucket) -> None:
        """Do nothing: the store has the bucket."""

    def discard(self, address: BucketAddress) -> None:
        """Do nothing: the store has no bucket there."""
