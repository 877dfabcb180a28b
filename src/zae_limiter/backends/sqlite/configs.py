"""Configuration in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache

from ...core.audit import AuditEvent
from ...core.hierarchy import ConfigSlot
from ...core.models import LimiterConfig
from ...ports.repository_protocol import ConfigPage, Declaration
from .audit import record
from .codec import Row, decode_config_row, decode_entity_row, encode_limits_column
from .connection import Connection
from .entities import ENTITY_COLUMNS
from .managed import SELECT_MARKS, declare, is_current, set_mark

_KEY = "namespace_id = ? AND entity_id = ? AND resource = ?"
# Rows of slots begin with the number of the slot in the question, the row of an entity with NULL.
# Rows of slots are filled up to as many columns as an entity has.
_SELECT_SLOT = f"""
    SELECT {{number}},
        limits, inherit, on_unavailable, auto_update, strict_version, config_version, 0
    FROM configs WHERE {_KEY}
"""
_SELECT_ENTITY = f"""
    SELECT NULL, {ENTITY_COLUMNS} FROM entities WHERE namespace_id = ? AND entity_id = ?
"""
_SELECT_OWNERS = """
    SELECT entity_id FROM (
        SELECT entity_id FROM configs WHERE namespace_id = ? AND entity_id > '' LIMIT ?
    ) UNION ALL SELECT entity_id FROM (
        SELECT entity_id FROM entities WHERE namespace_id = ? LIMIT ?
    )
"""
_UPSERT = """
    INSERT INTO configs (
        namespace_id, entity_id, resource,
        limits, inherit, on_unavailable, auto_update, strict_version, config_version
    ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1)
    ON CONFLICT (namespace_id, entity_id, resource) DO UPDATE SET
        limits = CASE WHEN excluded.inherit IS NULL THEN limits ELSE excluded.limits END,
        inherit = coalesce(excluded.inherit, inherit),
        on_unavailable = coalesce(excluded.on_unavailable, on_unavailable),
        auto_update = coalesce(excluded.auto_update, auto_update),
        strict_version = coalesce(excluded.strict_version, strict_version),
        config_version = CASE
            WHEN typeof(config_version) = 'integer' AND config_version BETWEEN 0 AND 1 << 60
            THEN config_version + 1 ELSE 1
        END
"""
_SELECT_VERSION = f"SELECT config_version FROM configs WHERE {_KEY}"
_FORGET = f"""
    UPDATE configs
    SET limits = NULL, inherit = NULL, on_unavailable = NULL,
        auto_update = NULL, strict_version = NULL
    WHERE {_KEY} AND coalesce(limits, on_unavailable, auto_update, strict_version) IS NOT NULL
"""
_WITH_LIMITS = "limits IS NOT NULL AND limits <> '[]'"
_SELECT_ENTITIES = f"""
    SELECT entity_id FROM configs
    WHERE namespace_id = ? AND resource = ? AND entity_id > ? AND {_WITH_LIMITS}
    ORDER BY entity_id LIMIT ?
"""
_SELECT_RESOURCES_OF_ENTITIES = f"""
    SELECT DISTINCT resource FROM configs
    WHERE namespace_id = ? AND entity_id <> '' AND resource <> '' AND {_WITH_LIMITS}
    ORDER BY resource
"""
_SELECT_RESOURCES = f"""
    SELECT resource FROM configs
    WHERE namespace_id = ? AND entity_id = '' AND resource <> '' AND {_WITH_LIMITS}
    ORDER BY resource
"""
_ALL = -1
_CONFIG_COLUMNS = 6


class SqliteConfigs:
    """The configuration records, one row for each slot."""

    def __init__(self, connection: Connection, reader: Connection) -> None:
        self._connection = connection
        self._reader = reader

    async def read(
        self, namespace_id: str, slots: Sequence[ConfigSlot], entity_id: str | None = None
    ) -> ConfigPage:
        values = [part for slot in slots for part in _key(namespace_id, slot)]
        if entity_id is not None:
            values += (namespace_id, entity_id)
        select = _select(len(slots), with_entity=entity_id is not None)
        return _page(namespace_id, slots, await self._connection.select(select, values))

    async def entities_with_records(self, namespace_id: str, at_most: int) -> frozenset[str] | None:
        some = (namespace_id, at_most + 1)
        rows = await self._connection.select(_SELECT_OWNERS, (*some, *some))
        return None if len(rows) > at_most else frozenset(entity_id for (entity_id,) in rows)

    async def write(
        self,
        namespace_id: str,
        slot: ConfigSlot,
        change: LimiterConfig,
        event: AuditEvent,
        declaration: Declaration | None = None,
    ) -> int | None:
        key = _key(namespace_id, slot)
        said = (
            encode_limits_column(change.limits),
            None if change.limits is None else change.inherit,
            change.on_unavailable,
            change.auto_update,
            change.strict_version,
        )

        def set_fields(db: sqlite3.Connection) -> int | None:
            if not is_current(db, key, declaration):
                return None
            declare(db, key, declaration)
            db.execute(_UPSERT, (*key, *said))
            record(db, namespace_id, event)
            (version,) = db.execute(_SELECT_VERSION, key).fetchone()
            return int(version)

        return await self._connection.write(set_fields)

    async def delete(
        self,
        namespace_id: str,
        slot: ConfigSlot,
        event: AuditEvent,
        declaration: Declaration | None = None,
    ) -> bool:
        key = _key(namespace_id, slot)

        def forget(db: sqlite3.Connection) -> bool:
            if not is_current(db, key, declaration):
                return False
            said_something = db.execute(_FORGET, key).rowcount > 0
            if said_something:
                declare(db, key, declaration)
                record(db, namespace_id, event)
            return said_something

        return await self._connection.write(forget)

    async def marks(self, namespace_id: str) -> dict[ConfigSlot, str]:
        rows = await self._reader.select(SELECT_MARKS, (namespace_id,))
        return {ConfigSlot(entity or None, resource or None): m for entity, resource, m in rows}

    async def mark(self, namespace_id: str, slot: ConfigSlot, mark: str | None) -> None:
        key = _key(namespace_id, slot)
        await self._connection.write(lambda db: set_mark(db, key, mark))

    async def entities_with_limits(
        self, namespace_id: str, resource: str, limit: int | None, cursor: str | None
    ) -> tuple[list[str], str | None]:
        # One row more than wanted tells whether another page follows.
        rows = _ALL if limit is None else limit + 1
        key = (namespace_id, resource, cursor or "", rows)
        found = await self._texts(_SELECT_ENTITIES, key)
        page = found if limit is None else found[:limit]
        return page, page[-1] if len(page) < len(found) else None

    async def resources_with_entity_limits(self, namespace_id: str) -> list[str]:
        return await self._texts(_SELECT_RESOURCES_OF_ENTITIES, (namespace_id,))

    async def resources_with_defaults(self, namespace_id: str) -> list[str]:
        return await self._texts(_SELECT_RESOURCES, (namespace_id,))

    async def _texts(self, select: str, key: tuple[str | int, ...]) -> list[str]:
        return [text for (text,) in await self._reader.select(select, key)]


def _key(namespace_id: str, slot: ConfigSlot) -> tuple[str, str, str]:
    return namespace_id, slot.entity_id or "", slot.resource or ""


@lru_cache(maxsize=64)
def _select(slots: int, *, with_entity: bool) -> str:
    """Return one statement for all records that an acquire needs. Most of them do not exist, and a
    statement for each would be as many round trips through the driver."""
    parts = [_SELECT_SLOT.format(number=number) for number in range(slots)]
    return " UNION ALL ".join([*parts, _SELECT_ENTITY] if with_entity else parts)


def _page(namespace_id: str, slots: Sequence[ConfigSlot], rows: Sequence[Row]) -> ConfigPage:
    if not rows:
        return ConfigPage()
    configs, entity = {}, None
    for number, *row in rows:
        if number is None:
            entity = decode_entity_row(namespace_id, row)
            continue
        slot = slots[number]
        config = decode_config_row(_key(namespace_id, slot), row[:_CONFIG_COLUMNS])
        if config != LimiterConfig():
            configs[slot] = config
    return ConfigPage(configs, entity)
