"""Usage in memory: counted by the hour, added up to longer windows when asked."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.models import UsageSnapshot
from ...core.usage import UsageHour, snapshots
from ...ports.repository_protocol import UsageQuery
from ..paging import page_snapshots
from .readings import current_hours
from .tables import Tables


class MemoryUsage:
    """Snapshots out of the hours that bucket writes counted."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def read(
        self, namespace_id: str, query: UsageQuery, limit: int, cursor: str | None
    ) -> tuple[list[UsageSnapshot], str | None]:
        with self._tables.lock:
            hours = [
                hour
                for hour in _hours(self._tables, namespace_id)
                if query.entity_id in (None, hour.entity_id)
                and query.resource in (None, hour.resource)
            ]
            found = snapshots(hours, query.window_type)
        return page_snapshots(found, query, limit, cursor)


def _hours(tables: Tables, namespace_id: str) -> Iterator[UsageHour]:
    """An hour may come in several parts: from the table and from each shard of a bucket."""
    for (owner, entity_id, resource, start_ms), counts in tables.usage.items():
        if owner == namespace_id:
            yield UsageHour(entity_id, resource, start_ms, counts)
    yield from current_hours(tables, namespace_id)
