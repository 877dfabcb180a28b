"""Audit events in SQLite."""

from __future__ import annotations

import sqlite3
from functools import partial

from ...core.audit import AuditEvent
from ..damage import readable
from .codec import decode_event_row, encode_event_row
from .connection import Connection

_COLUMNS = "entity_id, event_id, timestamp, action, principal, resource, details"
_INSERT = f"INSERT INTO audit (namespace_id, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_SELECT = f"""
    SELECT {_COLUMNS} FROM audit WHERE namespace_id = ? AND entity_id = ? AND event_id < ?
    ORDER BY event_id DESC, position LIMIT ?
"""
_AFTER_ALL = "\U0010ffff"


class SqliteAudit:
    """Events by namespace and entity."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def read(
        self, namespace_id: str, entity_id: str, limit: int, start_event_id: str | None
    ) -> list[AuditEvent]:
        before = _AFTER_ALL if start_event_id is None else start_event_id
        wanted = (namespace_id, entity_id, before, limit)
        rows = await self._connection.read(lambda db: db.execute(_SELECT, wanted).fetchall())
        return list(readable(partial(decode_event_row, namespace_id), rows))


def record(db: sqlite3.Connection, namespace_id: str, event: AuditEvent) -> None:
    """Keep an event, in the transaction of the change it tells of."""
    db.execute(_INSERT, (namespace_id, *encode_event_row(event)))
