"""The windows of one page of usage, found and sorted by SQLite.

Only the keys of all windows are read for a page. The counts of the page's own windows are decoded
afterwards, so that a page costs little however many entities there are.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from ...core.models import UsageSnapshot
from ...core.usage import newest_first_text
from ...core.windows import LAST_HOUR_MS, WINDOW_TYPES, next_window, parse_iso
from ...ports.repository_protocol import UsageQuery
from ..paging import SnapshotPlace

IS_HOUR = f"typeof({{hour}}) = 'integer' AND {{hour}} BETWEEN 0 AND {LAST_HOUR_MS}"
_FORMATS = {
    "hourly": "%Y-%m-%dT%H:00:00Z",
    "daily": "%Y-%m-%dT00:00:00Z",
    "monthly": "%Y-%m-01T00:00:00Z",
}
_SELECT = """
    WITH hours (entity_id, resource, hour_s) AS (
        SELECT entity_id, resource, hour_ms / 1000 FROM usage WHERE {where} AND {flushed}
        UNION SELECT entity_id, resource, usage_hour_ms / 1000 FROM buckets
        WHERE {where} AND {current}
    ), windows (start, kind, entity_id, resource) AS ({windows})
    SELECT start, kind, entity_id, resource FROM windows WHERE {bounds}
    ORDER BY start DESC, kind, entity_id, resource LIMIT ?
"""
_WINDOWS = """
    SELECT DISTINCT strftime('{format}', hour_s, 'unixepoch'), {kind}, entity_id, resource
    FROM hours
"""


class WindowKey(NamedTuple):
    """The key of a window: its start, the number of its type, and its owner."""

    start: str
    kind: int
    entity_id: str
    resource: str

    @property
    def hours_ms(self) -> tuple[int, int]:
        """The first hour of the window, and the first hour after it."""
        start = parse_iso(self.start)
        end = next_window(WINDOW_TYPES[self.kind], start)
        return int(start.timestamp()) * 1000, int(end.timestamp()) * 1000


def window_key_of(snapshot: UsageSnapshot) -> WindowKey:
    """Return the key of a snapshot's window."""
    kind = WINDOW_TYPES.index(snapshot.window_type)
    return WindowKey(snapshot.window_start, kind, snapshot.entity_id, snapshot.resource)


def select_windows(
    db: sqlite3.Connection,
    where: str,
    values: Sequence[str],
    query: UsageQuery,
    place: SnapshotPlace | None,
    limit: int,
) -> list[WindowKey]:
    """Return the keys of the windows after a place, newest first, at most so many."""
    wanted = WINDOW_TYPES if query.window_type is None else (query.window_type,)
    windows = " UNION ALL ".join(
        _WINDOWS.format(format=_FORMATS[each], kind=WINDOW_TYPES.index(each)) for each in wanted
    )
    bounds = {"start >= ?": query.start_time, "start <= ?": query.end_time}
    terms = [term for term, value in bounds.items() if value is not None]
    bound_values: list[object] = [value for value in bounds.values() if value is not None]
    if place is not None:
        start = newest_first_text(place[0])
        terms.append("(start < ? OR (start = ? AND (kind, entity_id, resource) > (?, ?, ?)))")
        bound_values += (start, start, *place[1:])
    select = _SELECT.format(
        where=where,
        flushed=IS_HOUR.format(hour="hour_ms"),
        current=IS_HOUR.format(hour="usage_hour_ms"),
        windows=windows,
        bounds=" AND ".join(terms) or "TRUE",
    )
    rows = db.execute(select, (*values, *values, *bound_values, limit))
    return [WindowKey(*row) for row in rows]
