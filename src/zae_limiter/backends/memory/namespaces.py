"""The namespace registry in memory."""

from __future__ import annotations

from dataclasses import replace

from ...core.audit import AuditEvent
from ...core.validation import RESERVED_NAMESPACE
from ...ports.repository_protocol import NamespaceRecord
from ..states import still_active
from .readings import forget
from .tables import Tables, drop


class MemoryNamespaces:
    """Records by id; at most one active record has a name."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def register(
        self, record: NamespaceRecord, event: AuditEvent | None = None
    ) -> NamespaceRecord:
        with self._tables.lock:
            existing = self._active(record.name)
            if existing is None:
                self._put(record, event)
            return existing or record

    async def read(self, name: str) -> NamespaceRecord | None:
        with self._tables.lock:
            return self._active(name)

    async def read_id(self, namespace_id: str) -> NamespaceRecord | None:
        with self._tables.lock:
            return self._tables.namespaces.get(namespace_id)

    async def active(self) -> list[NamespaceRecord]:
        return sorted(self._with_status("active"), key=lambda record: record.name)

    async def orphans(self) -> list[NamespaceRecord]:
        return sorted(self._with_status("deleted"), key=lambda record: record.name)

    async def delete(self, name: str, deleted_at: str, event: AuditEvent | None = None) -> None:
        with self._tables.lock:
            record = self._active(name)
            if record is not None:
                self._put(replace(record, status="deleted", deleted_at=deleted_at), event)

    async def recover(self, namespace_id: str, event: AuditEvent | None = None) -> bool:
        with self._tables.lock:
            record = self._tables.namespaces.get(namespace_id)
            if record is None or record.status != "deleted" or self._active(record.name):
                return False
            self._put(replace(record, status="active", deleted_at=None), event)
        return True

    async def purge(self, namespace_id: str, event: AuditEvent | None = None) -> int:
        tables = self._tables
        with tables.lock:
            record = tables.namespaces.get(namespace_id)
            if record is not None and record.status == "active":
                raise still_active(record)
            if record is not None:
                self._record(record, event)
            tables.namespaces.pop(namespace_id, None)
            data = (
                *(tables.configs, tables.marks, tables.entities, tables.audit),
                *(tables.usage, tables.snapshots, tables.receipts),
            )
            purged = forget(tables, lambda key: key.namespace_id == namespace_id)
            return purged + sum(drop(table, lambda key: key[0] == namespace_id) for table in data)

    def _active(self, name: str) -> NamespaceRecord | None:
        records = self._tables.namespaces.values()
        return next((r for r in records if r.name == name and r.status == "active"), None)

    def _with_status(self, status: str) -> list[NamespaceRecord]:
        with self._tables.lock:
            return [r for r in self._tables.namespaces.values() if r.status == status]

    def _put(self, record: NamespaceRecord, event: AuditEvent | None) -> None:
        self._tables.namespaces[record.namespace_id] = record
        self._record(record, event)

    def _record(self, record: NamespaceRecord, event: AuditEvent | None) -> None:
        if event is not None:
            detailed = event.with_details(namespace_id=record.namespace_id)
            self._tables.record(RESERVED_NAMESPACE, detailed)
