"""Usage in SQLite: hours that are over in a table, the current ones in the bucket rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import partial

from ...core.bucket import BucketAddress
from ...core.models import UsageSnapshot
from ...core.usage import UsageCounts, UsageHour, snapshots
from ...ports.repository_protocol import UsageQuery
from ..damage import readable
from ..paging import page_snapshots
from .codec import (
    BUCKET_COLUMNS,
    Row,
    decode_bucket_row,
    decode_counts,
    decode_usage,
    encode_counts,
)
from .connection import Connection

_KEY = "namespace_id = ? AND entity_id = ? AND resource = ? AND hour_ms = ?"
_SELECT_HOUR = f"SELECT counts FROM usage WHERE {_KEY}"
_UPDATE_HOUR = f"UPDATE usage SET counts = ? WHERE {_KEY}"
_INSERT_HOUR = """
    INSERT INTO usage (counts, namespace_id, entity_id, resource, hour_ms) VALUES (?, ?, ?, ?, ?)
"""
_SELECT_FLUSHED = "SELECT entity_id, resource, hour_ms, counts FROM usage"
_SELECT_CURRENT = f"SELECT entity_id, resource, shard, {BUCKET_COLUMNS} FROM buckets"
_HOURS_IN_BUCKETS = """
    SELECT count(*) FROM (
        SELECT entity_id, resource, usage_hour_ms FROM buckets WHERE {where}
        EXCEPT SELECT entity_id, resource, hour_ms FROM usage WHERE {where}
    )
"""


class SqliteUsage:
    """Snapshots out of the hours that bucket writes counted."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def read(
        self, namespace_id: str, query: UsageQuery, limit: int, cursor: str | None
    ) -> tuple[list[UsageSnapshot], str | None]:
        hours = await self._connection.read(lambda db: list(_hours(db, namespace_id, query)))
        return page_snapshots(snapshots(hours, query.window_type), query, limit, cursor)


def add_usage(
    db: sqlite3.Connection, owner: tuple[str, str, str], hour_ms: int, counts: UsageCounts
) -> None:
    """Add counts to an hour of the table."""
    key = (*owner, hour_ms)
    row = db.execute(_SELECT_HOUR, key).fetchone()
    if row is None:
        db.execute(_INSERT_HOUR, (encode_counts(counts), *key))
        return
    total = decode_counts(key, row)
    total.add(counts)
    db.execute(_UPDATE_HOUR, (encode_counts(total), *key))


def count_hours_in_buckets(db: sqlite3.Connection, namespace_id: str, entity_id: str | None) -> int:
    """Count the hours that only bucket rows know."""
    where, values = _where(namespace_id, entity_id, None)
    (count,) = db.execute(_HOURS_IN_BUCKETS.format(where=where), values * 2).fetchone()
    return int(count)


def _hours(db: sqlite3.Connection, namespace_id: str, query: UsageQuery) -> Iterator[UsageHour]:
    """Yield hours, some of them in several parts: from the table and from each shard. A part that
    cannot be read is left out."""
    where, values = _where(namespace_id, query.entity_id, query.resource)
    for statement, decode in ((_SELECT_FLUSHED, _flushed), (_SELECT_CURRENT, _current)):
        yield from readable(
            partial(decode, namespace_id), db.execute(f"{statement} WHERE {where}", values)
        )


def _flushed(namespace_id: str, row: Row) -> UsageHour:
    entity_id, resource, hour_ms, *counts = row
    key = (namespace_id, entity_id, resource, hour_ms)
    return UsageHour(entity_id, resource, hour_ms, decode_counts(key, counts))


def _current(namespace_id: str, row: Row) -> UsageHour:
    entity_id, resource, shard, *state = row
    address = BucketAddress(namespace_id, entity_id, resource, shard)
    item = decode_bucket_row(address, state)
    return UsageHour(entity_id, resource, item.hour_ms, decode_usage(address, item))


def _where(
    namespace_id: str, entity_id: str | None, resource: str | None
) -> tuple[str, tuple[str, ...]]:
    wanted = {"namespace_id": namespace_id, "entity_id": entity_id, "resource": resource}
    given = {column: value for column, value in wanted.items() if value is not None}
    return " AND ".join(f"{column} = ?" for column in given), tuple(given.values())
