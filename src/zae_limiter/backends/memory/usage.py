"""Usage in memory: counted by the hour, added up to longer windows when asked."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.models import UsageSnapshot, UsageSummary
from ...core.usage import (
    UsageAddition,
    UsageHour,
    newest_first,
    snapshot_of,
    snapshots,
    summarize,
)
from ...ports.repository_protocol import UsageQuery
from ..paging import page_snapshots, within_times
from .readings import current_hours
from .tables import Tables


class MemoryUsage:
    """Snapshots out of the hours that bucket writes counted, and those that a stream of another
    store was counted into."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def read(
        self, namespace_id: str, query: UsageQuery, limit: int, cursor: str | None
    ) -> tuple[list[UsageSnapshot], str | None]:
        found = sorted(self._found(namespace_id, query), key=newest_first)
        return page_snapshots(found, query, limit, cursor)

    async def summary(self, namespace_id: str, query: UsageQuery) -> UsageSummary:
        return summarize(within_times(self._found(namespace_id, query), query))

    def _found(self, namespace_id: str, query: UsageQuery) -> list[UsageSnapshot]:
        with self._tables.lock:
            hours = [
                hour
                for hour in _hours(self._tables, namespace_id)
                if query.entity_id in (None, hour.entity_id)
                and query.resource in (None, hour.resource)
            ]
            streamed = list(_streamed(self._tables, namespace_id, query))
        return [*snapshots(hours, query.window_type), *streamed]

    async def add(self, addition: UsageAddition) -> bool:
        key = (
            *(addition.namespace_id, addition.entity_id, addition.resource),
            *(addition.window, addition.start),
        )
        with self._tables.lock:
            snapshot = self._tables.snapshots[key]
            rest = addition.beyond(snapshot.counted)
            snapshot.counts.add(rest.total())
            snapshot.counted |= rest.last_sequences()
        return bool(rest.parts)


def _hours(tables: Tables, namespace_id: str) -> Iterator[UsageHour]:
    """An hour may come in several parts: from the table and from each shard of a bucket."""
    for (owner, entity_id, resource, start_ms), counts in tables.usage.items():
        if owner == namespace_id:
            yield UsageHour(entity_id, resource, start_ms, counts)
    yield from current_hours(tables, namespace_id)


def _streamed(tables: Tables, namespace_id: str, query: UsageQuery) -> Iterator[UsageSnapshot]:
    for (owner, entity_id, resource, window, start), snapshot in tables.snapshots.items():
        if (
            owner == namespace_id
            and query.entity_id in (None, entity_id)
            and query.resource in (None, resource)
            and query.window_type in (None, window)
        ):
            yield snapshot_of(entity_id, resource, window, start, snapshot.counts)
