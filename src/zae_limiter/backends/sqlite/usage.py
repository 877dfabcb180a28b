"""Usage in SQLite: hours that are over in a table, the current ones in the bucket rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import partial

from ...core.bucket import BucketAddress
from ...core.models import UsageSnapshot, UsageSummary
from ...core.usage import UsageCounts, UsageHour, UsageTotals, snapshots
from ...core.windows import WindowType
from ...ports.repository_protocol import UsageQuery
from ..damage import readable
from ..paging import snapshot_cursor, snapshot_place, within_times
from .codec import (
    BUCKET_COLUMNS,
    Row,
    decode_bucket_row,
    decode_counts,
    decode_usage,
    encode_counts,
)
from .connection import Connection
from .usage_windows import IS_HOUR, WindowKey, select_windows, window_key_of

_KEY = "namespace_id = ? AND entity_id = ? AND resource = ? AND hour_ms = ?"
_SELECT_HOUR = f"SELECT counts FROM usage WHERE {_KEY}"
_UPDATE_HOUR = f"UPDATE usage SET counts = ? WHERE {_KEY}"
_INSERT_HOUR = """
    INSERT INTO usage (counts, namespace_id, entity_id, resource, hour_ms) VALUES (?, ?, ?, ?, ?)
"""
_SELECT_FLUSHED = "SELECT entity_id, resource, hour_ms, counts FROM usage"
_SELECT_CURRENT = f"SELECT entity_id, resource, shard, {BUCKET_COLUMNS} FROM buckets"
# Few: a page is decoded in about a millisecond, for which other threads wait.
_ENTITIES_IN_PAGE = 50
_SELECT_ENTITIES = f"""
    SELECT entity_id FROM (
        SELECT DISTINCT entity_id FROM usage WHERE {{where}}
        ORDER BY entity_id LIMIT {_ENTITIES_IN_PAGE}
    ) UNION SELECT entity_id FROM (
        SELECT DISTINCT entity_id FROM buckets WHERE {{where}}
        ORDER BY entity_id LIMIT {_ENTITIES_IN_PAGE}
    ) ORDER BY entity_id LIMIT {_ENTITIES_IN_PAGE}
"""
_HOURS_IN_BUCKETS = """
    SELECT count(*) FROM (
        SELECT entity_id, resource, usage_hour_ms FROM buckets WHERE {where}
        EXCEPT SELECT entity_id, resource, hour_ms FROM usage WHERE {where}
    )
"""


class SqliteUsage:
    """Snapshots out of the hours that bucket writes counted."""

    def __init__(self, reader: Connection) -> None:
        self._reader = reader

    async def read(
        self, namespace_id: str, query: UsageQuery, limit: int, cursor: str | None
    ) -> tuple[list[UsageSnapshot], str | None]:
        place = None if cursor is None else snapshot_place(cursor)
        where, values = _where(namespace_id, query.entity_id, query.resource, after="")

        def page(db: sqlite3.Connection) -> tuple[list[UsageSnapshot], WindowKey | None]:
            if place is None:
                _warn_of_no_hours(db, namespace_id, where, values)
            keys = select_windows(db, where, values, query, place, limit + 1)
            found = list(_decoded(db, namespace_id, query.window_type, keys[:limit]))
            return found, keys[limit - 1] if len(keys) > limit else None

        found, last = await self._reader.read(page)
        return found, None if last is None else snapshot_cursor(last)

    async def summary(self, namespace_id: str, query: UsageQuery) -> UsageSummary:
        totals = UsageTotals()
        after: str | None = ""
        while after is not None:
            found, after = await self._reader.read(
                partial(_some_entities, namespace_id=namespace_id, query=query, after=after)
            )
            totals.add(found)
        return totals.summary()


def _decoded(
    db: sqlite3.Connection, namespace_id: str, window: WindowType | None, keys: list[WindowKey]
) -> Iterator[UsageSnapshot]:
    """Yield the snapshots of these windows, in their order."""
    owners: dict[tuple[str, str], tuple[int, int]] = {}
    for key in keys:
        first_ms, end_ms = key.hours_ms
        owner = (key.entity_id, key.resource)
        known = owners.get(owner, (first_ms, end_ms))
        owners[owner] = (min(first_ms, known[0]), max(end_ms, known[1]))
    hours = (
        hour
        for owner, span_ms in owners.items()
        for hour in _hours(db, namespace_id, UsageQuery(*owner), span_ms=span_ms)
    )
    found = {window_key_of(each): each for each in snapshots(hours, window)}
    yield from (found[key] for key in keys if key in found)


def _warn_of_no_hours(
    db: sqlite3.Connection, namespace_id: str, where: str, values: tuple[str, ...]
) -> None:
    """Warn of rows whose hour is none. No window has them, so that no page would tell."""
    for select, hour, decode in (
        (_SELECT_FLUSHED, "hour_ms", _flushed),
        (_SELECT_CURRENT, "usage_hour_ms", _current),
    ):
        damaged = f"{select} WHERE {where} AND NOT ({IS_HOUR.format(hour=hour)})"
        for _ in readable(partial(decode, namespace_id), db.execute(damaged, values)):
            pass


def _some_entities(
    db: sqlite3.Connection, namespace_id: str, query: UsageQuery, after: str
) -> tuple[list[UsageSnapshot], str | None]:
    """Return the snapshots of some entities that follow one in the order of their ids, and the last
    of those entities; None if no more follow."""
    where, values = _where(namespace_id, query.entity_id, query.resource, after)
    select = _SELECT_ENTITIES.format(where=where)
    ids = [entity_id for (entity_id,) in db.execute(select, values * 2)]
    if not ids:
        return [], None
    hours = _hours(db, namespace_id, query, after, ids[-1])
    found = list(within_times(snapshots(hours, query.window_type), query))
    return found, ids[-1] if len(ids) == _ENTITIES_IN_PAGE else None


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


def _hours(
    db: sqlite3.Connection,
    namespace_id: str,
    query: UsageQuery,
    after: str | None = None,
    last: str | None = None,
    span_ms: tuple[int, int] | None = None,
) -> Iterator[UsageHour]:
    """Yield hours, some of them in several parts: from the table and from each shard. A part that
    cannot be read is left out. `after`, `last`: only of entities whose ids lie between these.
    `span_ms`: only hours from the first of these times on, and before the second."""
    where, values = _where(namespace_id, query.entity_id, query.resource, after, last)
    for select, column, decode in (
        (_SELECT_FLUSHED, "hour_ms", _flushed),
        (_SELECT_CURRENT, "usage_hour_ms", _current),
    ):
        within = "TRUE" if span_ms is None else f"{column} >= ? AND {column} < ?"
        rows = db.execute(f"{select} WHERE {where} AND {within}", (*values, *(span_ms or ())))
        yield from readable(partial(decode, namespace_id), rows)


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
    namespace_id: str,
    entity_id: str | None,
    resource: str | None,
    after: str | None = None,
    last: str | None = None,
) -> tuple[str, tuple[str, ...]]:
    # The sign keeps SQLite from the index by resource where a range of entities is wanted: by that
    # index it would sort all rows for each page.
    wanted = {
        "namespace_id = ?": namespace_id,
        "entity_id = ?": entity_id,
        "resource = ?" if after is None else "+resource = ?": resource,
        "entity_id > ?": after,
        "entity_id <= ?": last,
    }
    given = {term: value for term, value in wanted.items() if value is not None}
    return " AND ".join(given), tuple(given.values())
