"""Usage in memory: counted by the hour, added up to longer windows when asked."""

from __future__ import annotations

from ...core.models import UsageSnapshot
from ...core.usage import UsageHour, snapshots
from ...ports.repository_protocol import UsageQuery
from ..paging import page_snapshots
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
                UsageHour(entity_id, resource, start_ms, counts)
                for (ns, entity_id, resource, start_ms), counts in self._tables.usage.items()
                if ns == namespace_id
                and query.entity_id in (None, entity_id)
                and query.resource in (None, resource)
            ]
            found = snapshots(hours, query.window_type)
        return page_snapshots(found, query, limit, cursor)
