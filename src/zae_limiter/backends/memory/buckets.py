"""Buckets in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...core.bucket import Bucket, BucketAddress
from ...core.writes import Outcome, Write
from ..locked_buckets import Apply, fence_locked, write_all_locked, write_locked
from .readings import forget, note
from .tables import Tables

_FIRST_SWEEP_AT = 1024


class MemoryBuckets:
    """`apply` over a dictionary."""

    metered = False

    def __init__(self, tables: Tables, apply: Apply) -> None:
        self._tables = tables
        self._apply = apply
        self._sweep_at = _FIRST_SWEEP_AT

    async def write(self, address: BucketAddress, write: Write) -> Outcome:
        with self._tables.lock:
            return write_locked(self, self._apply, address, write)

    async def write_all(self, writes: Sequence[tuple[BucketAddress, Write]]) -> list[Outcome]:
        with self._tables.lock:
            return write_all_locked(self, self._apply, writes)

    async def fence(self, address: BucketAddress, operation: str) -> Bucket | None:
        with self._tables.lock:
            return fence_locked(self, address, operation)

    def find(self, address: BucketAddress) -> Bucket | None:
        return self._tables.buckets.get(address)

    def keep(
        self, address: BucketAddress, at_ms: int, before: Bucket | None, after: Bucket
    ) -> None:
        note(self._tables, address, at_ms, before, after)
        self._tables.buckets[address] = after
        if before is None:
            self._sweep(at_ms)

    def replace(self, address: BucketAddress, bucket: Bucket) -> None:
        self._tables.buckets[address] = bucket

    def _sweep(self, now_ms: int) -> None:
        """Drop expired buckets each time their number has doubled: O(1) for each bucket."""
        buckets = self._tables.buckets
        if len(buckets) < self._sweep_at:
            return
        forget(self._tables, lambda address: buckets[address].is_expired(now_ms))
        self._sweep_at = max(_FIRST_SWEEP_AT, 2 * len(buckets))

    async def read(self, addresses: Sequence[BucketAddress]) -> dict[BucketAddress, Bucket]:
        with self._tables.lock:
            found = self._tables.buckets
            return {address: found[address] for address in addresses if address in found}

    async def of_entity(self, namespace_id: str, entity_id: str) -> dict[BucketAddress, Bucket]:
        return self._where(lambda a: a[:2] == (namespace_id, entity_id))

    async def of_resource(self, namespace_id: str, resource: str) -> dict[BucketAddress, Bucket]:
        return self._where(lambda a: (a.namespace_id, a.resource) == (namespace_id, resource))

    async def of_resource_after(
        self, namespace_id: str, resource: str, cursor: str | None
    ) -> tuple[dict[BucketAddress, Bucket], str | None]:
        return await self.of_resource(namespace_id, resource), None

    async def of_namespace_after(
        self, namespace_id: str, cursor: str | None
    ) -> tuple[dict[BucketAddress, Bucket], str | None]:
        return self._where(lambda a: a.namespace_id == namespace_id), None

    def _where(self, wanted: Callable[[BucketAddress], bool]) -> dict[BucketAddress, Bucket]:
        with self._tables.lock:
            found = self._tables.buckets
            return {address: found[address] for address in sorted(found) if wanted(address)}
