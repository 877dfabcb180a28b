"""Audit events in memory."""

from __future__ import annotations

from copy import deepcopy

from ...core.audit import AuditEvent
from .tables import Tables


class MemoryAudit:
    """Events by namespace and entity."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def read(
        self, namespace_id: str, entity_id: str, limit: int, start_event_id: str | None
    ) -> list[AuditEvent]:
        with self._tables.lock:
            events = list(self._tables.audit.get((namespace_id, entity_id), ()))
        events.sort(key=lambda event: event.event_id, reverse=True)
        older = [e for e in events if start_event_id is None or e.event_id < start_event_id]
        return deepcopy(older[:limit])
