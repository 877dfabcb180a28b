"""Buckets in memory need not be remembered: they are here."""

from __future__ import annotations

from ...core.bucket import Bucket, BucketAddress
from .tables import Tables


class MemoryImages:
    """Every bucket as it is. There is nothing to keep, so nothing can be out of date."""

    def __init__(self, tables: Tables) -> None:
        self.get = tables.buckets.get

    def put(self, address: BucketAddress, bucket: Bucket) -> None:
        """The store has it."""

    def discard(self, address: BucketAddress) -> None:
        """The store has none."""
