"""Entities in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import partial

from ...core.audit import AuditEvent
from ...core.models import Entity
from ...ports.repository_protocol import EntityQuery
from ..damage import readable
from .audit import record
from .codec import decode_entity_row, encode_entity_row, encode_metadata_column
from .connection import Connection
from .usage import count_hours_in_buckets

ENTITY_COLUMNS = "entity_id, name, parent_id, cascade, metadata, created_at, version"
_INSERT = f"""
    INSERT INTO entities (namespace_id, {ENTITY_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING
"""
_SELECT = f"SELECT {ENTITY_COLUMNS} FROM entities WHERE namespace_id = ? AND entity_id = ?"
_SELECT_SEVERAL = f"""
    SELECT {ENTITY_COLUMNS} FROM entities WHERE namespace_id = ? AND entity_id IN ({{places}})
"""
_IDS_PER_SELECT = 500
_UPDATE = """
    UPDATE entities SET name = ?, metadata = ?, version = version + 1
    WHERE namespace_id = ? AND entity_id = ? AND version = ?
"""
_SELECT_CHILDREN = f"""
    SELECT {ENTITY_COLUMNS} FROM entities
    WHERE namespace_id = ? AND parent_id = ? ORDER BY entity_id
"""
# No id contains a character beyond this one, so it bounds the ids that start with a prefix.
_AFTER_ALL = "\U0010ffff"
_SELECT_PAGE = f"""
    SELECT {ENTITY_COLUMNS} FROM entities
    WHERE namespace_id = ?1 AND entity_id >= ?2 AND entity_id <= ?3 AND entity_id > ?4
    AND (?5 IS NULL OR parent_id = ?5) ORDER BY entity_id LIMIT ?6
"""
_TABLES = ("entities", "configs", "usage", "buckets")


class SqliteEntities:
    """The entities, one row each."""

    def __init__(self, connection: Connection, reader: Connection) -> None:
        self._connection = connection
        self._reader = reader

    async def create(self, namespace_id: str, entity: Entity, event: AuditEvent) -> bool:
        def insert(db: sqlite3.Connection) -> bool:
            is_new = db.execute(_INSERT, (namespace_id, *encode_entity_row(entity))).rowcount > 0
            if is_new:
                record(db, namespace_id, event)
            return is_new

        return await self._connection.write(insert)

    async def read(self, namespace_id: str, entity_id: str) -> Entity | None:
        return await self._connection.read(lambda db: read_entity(db, namespace_id, entity_id))

    async def read_several(self, namespace_id: str, entity_ids: Sequence[str]) -> dict[str, Entity]:
        rows = []
        for start in range(0, len(entity_ids), _IDS_PER_SELECT):
            some = entity_ids[start : start + _IDS_PER_SELECT]
            select = _SELECT_SEVERAL.format(places=", ".join("?" * len(some)))
            rows += await self._connection.select(select, (namespace_id, *some))
        found = (decode_entity_row(namespace_id, row) for row in rows)
        return {entity.id: entity for entity in found}

    async def update(
        self, namespace_id: str, entity: Entity, expected_version: int, event: AuditEvent
    ) -> Entity | None:
        key = (namespace_id, entity.id, expected_version)
        said = (entity.name, encode_metadata_column(entity.metadata))

        def replace(db: sqlite3.Connection) -> Entity | None:
            if db.execute(_UPDATE, (*said, *key)).rowcount == 0:
                return None
            record(db, namespace_id, event)
            return read_entity(db, namespace_id, entity.id)

        return await self._connection.write(replace)

    async def delete(self, namespace_id: str, entity_id: str, event: AuditEvent) -> int:
        def delete(db: sqlite3.Connection) -> int:
            deleted = count_hours_in_buckets(db, namespace_id, entity_id)
            for table in _TABLES:
                where = "namespace_id = ? AND entity_id = ?"
                owner = (namespace_id, entity_id)
                deleted += db.execute(f"DELETE FROM {table} WHERE {where}", owner).rowcount
            if deleted:
                record(db, namespace_id, event.with_details(records_deleted=deleted))
            return deleted

        return await self._connection.write(delete)

    async def children(self, namespace_id: str, parent_id: str) -> list[Entity]:
        key = (namespace_id, parent_id)
        rows = await self._reader.select(_SELECT_CHILDREN, key)
        return list(readable(partial(decode_entity_row, namespace_id), rows))

    async def page(
        self, namespace_id: str, query: EntityQuery, limit: int, cursor: str | None
    ) -> tuple[list[Entity], str | None]:
        end = query.prefix + _AFTER_ALL
        # One row more than wanted tells whether another page follows.
        values = (namespace_id, query.prefix, end, cursor or "", query.parent_id, limit + 1)
        found = await self._reader.select(_SELECT_PAGE, values)
        rows = found[:limit]
        page = list(readable(partial(decode_entity_row, namespace_id), rows))
        return page, str(rows[-1][0]) if len(rows) < len(found) else None


def read_entity(db: sqlite3.Connection, namespace_id: str, entity_id: str) -> Entity | None:
    """Return the entity, if there is one."""
    row = db.execute(_SELECT, (namespace_id, entity_id)).fetchone()
    return None if row is None else decode_entity_row(namespace_id, row)
