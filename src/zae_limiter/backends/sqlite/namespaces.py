"""The namespace registry in SQLite."""

from __future__ import annotations

import sqlite3

from ...core.audit import AuditEvent
from ...core.validation import RESERVED_NAMESPACE
from ...ports.repository_protocol import NamespaceRecord
from ..damage import readable
from ..states import still_active
from .audit import record as record_event
from .codec import decode_namespace_row, encode_namespace_row
from .connection import Connection
from .usage import count_hours_in_buckets

_COLUMNS = "name, namespace_id, created_at, status, deleted_at"
_SELECT = f"SELECT {_COLUMNS} FROM namespaces"
_SELECT_ACTIVE = f"{_SELECT} WHERE name = ? AND status = 'active'"
_SELECT_ID = f"{_SELECT} WHERE namespace_id = ?"
_SELECT_ALL_ACTIVE = f"{_SELECT} WHERE status = 'active' ORDER BY name"
# A namespace whose purge was interrupted is listed, too, so that the purge can be finished.
_SELECT_ORPHANS = f"{_SELECT} WHERE status <> 'active' ORDER BY name, position"
_UPSERT = f"""
    INSERT INTO namespaces ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (namespace_id) DO UPDATE SET name = excluded.name,
        created_at = excluded.created_at, status = excluded.status,
        deleted_at = excluded.deleted_at
"""
_MARK_DELETED = """
    UPDATE namespaces SET status = 'deleted', deleted_at = ? WHERE name = ? AND status = 'active'
"""
_RECOVER = """
    UPDATE OR IGNORE namespaces SET status = 'active', deleted_at = NULL
    WHERE namespace_id = ? AND status = 'deleted'
"""
_MARK_PURGING = "UPDATE namespaces SET status = 'purging' WHERE namespace_id = ?"
_DELETE = "DELETE FROM namespaces WHERE namespace_id = ?"

# Without this bound, a purge would lock other processes out for long.
_PURGED_PER_TRANSACTION = 1000
_KEYS = {
    "receipts": "namespace_id, name",
    "buckets": "namespace_id, entity_id, resource, shard",
    "configs": "namespace_id, entity_id, resource",
    "managed": "namespace_id, entity_id, resource",
    "entities": "namespace_id, entity_id",
    "audit": "position",
    "usage": "namespace_id, entity_id, resource, hour_ms",
}


class SqliteNamespaces:
    """The namespaces, one row each. At most one active row has a name."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def register(
        self, record: NamespaceRecord, event: AuditEvent | None = None
    ) -> NamespaceRecord:
        def put(db: sqlite3.Connection) -> NamespaceRecord:
            existing = _one(db, _SELECT_ACTIVE, record.name)
            if existing is None:
                db.execute(_UPSERT, encode_namespace_row(record))
                _record(db, record.namespace_id, event)
            return existing or record

        return await self._connection.write(put)

    async def read(self, name: str) -> NamespaceRecord | None:
        return await self._connection.read(lambda db: _one(db, _SELECT_ACTIVE, name))

    async def read_id(self, namespace_id: str) -> NamespaceRecord | None:
        return await self._connection.read(lambda db: _one(db, _SELECT_ID, namespace_id))

    async def active(self) -> list[NamespaceRecord]:
        return await self._connection.read(lambda db: _all(db, _SELECT_ALL_ACTIVE))

    async def orphans(self) -> list[NamespaceRecord]:
        return await self._connection.read(lambda db: _all(db, _SELECT_ORPHANS))

    async def delete(self, name: str, deleted_at: str, event: AuditEvent | None = None) -> None:
        def mark(db: sqlite3.Connection) -> None:
            found = _one(db, _SELECT_ACTIVE, name)
            if found is not None:
                db.execute(_MARK_DELETED, (deleted_at, name))
                _record(db, found.namespace_id, event)

        await self._connection.write(mark)

    async def recover(self, namespace_id: str, event: AuditEvent | None = None) -> bool:
        def mark(db: sqlite3.Connection) -> bool:
            is_recovered = db.execute(_RECOVER, (namespace_id,)).rowcount > 0
            if is_recovered:
                _record(db, namespace_id, event)
            return is_recovered

        return await self._connection.write(mark)

    async def purge(self, namespace_id: str, event: AuditEvent | None = None) -> int:
        await self._connection.write(lambda db: _begin_purge(db, namespace_id, event))
        purged = await self._connection.read(
            lambda db: count_hours_in_buckets(db, namespace_id, None)
        )
        for table in _KEYS:
            purged += await self._empty(table, namespace_id)
        await self._connection.write(lambda db: db.execute(_DELETE, (namespace_id,)))
        return purged

    async def _empty(self, table: str, namespace_id: str) -> int:
        key = _KEYS[table]
        delete = f"""
            DELETE FROM {table} WHERE ({key}) IN (
                SELECT {key} FROM {table} WHERE namespace_id = ? LIMIT {_PURGED_PER_TRANSACTION}
            )
        """
        total = 0
        while deleted := await self._connection.write(
            lambda db: db.execute(delete, (namespace_id,)).rowcount
        ):
            total += deleted
        return total


def _begin_purge(db: sqlite3.Connection, namespace_id: str, event: AuditEvent | None) -> None:
    """Mark the namespace: from here on it cannot be recovered."""
    record = _one(db, _SELECT_ID, namespace_id)
    if record is None:
        return
    if record.status == "active":
        raise still_active(record)
    db.execute(_MARK_PURGING, (namespace_id,))
    _record(db, namespace_id, event)


def _record(db: sqlite3.Connection, namespace_id: str, event: AuditEvent | None) -> None:
    if event is not None:
        record_event(db, RESERVED_NAMESPACE, event.with_details(namespace_id=namespace_id))


def _one(db: sqlite3.Connection, select: str, key: str) -> NamespaceRecord | None:
    row = db.execute(select, (key,)).fetchone()
    return None if row is None else decode_namespace_row(row)


def _all(db: sqlite3.Connection, select: str) -> list[NamespaceRecord]:
    return list(readable(decode_namespace_row, db.execute(select)))
