"""The windows of one page of usage, each found where the one before it ended.

Windows are listed newest first, and those of one time and type by their owners. So the newest hour
before a time tells the next windows, and a page reads the owners of these in order, from the last
owner of the page before. What is read for a page does not grow with the number of entities.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ...core.exceptions import ValidationError
from ...core.models import UsageSnapshot
from ...core.usage import newest_first_text
from ...core.windows import LAST_HOUR_MS, WINDOW_TYPES, iso, next_window, parse_iso, window_start
from ...ports.repository_protocol import UsageQuery
from ..paging import SnapshotPlace

IS_HOUR = f"typeof({{hour}}) = 'integer' AND {{hour}} BETWEEN 0 AND {LAST_HOUR_MS}"
_FLUSHED, _CURRENT = (IS_HOUR.format(hour=column) for column in ("hour_ms", "usage_hour_ms"))
_LATEST_HOUR = f"""
    SELECT max(hour_ms) FROM (
        SELECT max(hour_ms) AS hour_ms FROM usage WHERE {{where}} AND {_FLUSHED} AND hour_ms < ?
        UNION ALL
        SELECT max(usage_hour_ms) FROM buckets WHERE {{where}} AND {_CURRENT} AND usage_hour_ms < ?
    )
"""
_SELECT_OWNERS = f"""
    SELECT entity_id, resource FROM (
        SELECT DISTINCT entity_id, resource FROM usage
        WHERE {{where}} AND {_FLUSHED} AND {{hours}} AND (entity_id, resource) > (?, ?)
        ORDER BY entity_id, resource LIMIT ?
    ) UNION SELECT entity_id, resource FROM (
        SELECT DISTINCT entity_id, resource FROM buckets
        WHERE {{where}} AND {_CURRENT} AND +usage_hour_ms >= ? AND +usage_hour_ms < ?
        AND (entity_id, resource) > (?, ?)
        ORDER BY entity_id, resource LIMIT ?
    ) ORDER BY entity_id, resource LIMIT ?
"""
# One hour is found by the index of hours, whose rows are in the order of owners. Rows of several
# hours are not, so the sign keeps SQLite from that index.
_ONE_HOUR = "hour_ms >= ? AND hour_ms < ? AND hour_ms = ?"
_SEVERAL_HOURS = "+hour_ms >= ? AND +hour_ms < ?"
_HOURLY = WINDOW_TYPES.index("hourly")
_LAST = datetime.fromtimestamp(LAST_HOUR_MS // 1000, UTC)
_Owner = tuple[str, str]
_NOBODY: _Owner = ("", "")


class WindowKey(NamedTuple):
    """The key of a window: its start, the number of its type, and its owner."""

    start: str
    kind: int
    entity_id: str
    resource: str

    @property
    def hours_ms(self) -> tuple[int, int]:
        """The first hour of the window, and the first hour after it."""
        return _hours_ms(parse_iso(self.start), self.kind)


class _Span(NamedTuple):
    """A window of any owner."""

    start: datetime
    kind: int


class _Rows(NamedTuple):
    """The rows of a query's entities and resource."""

    db: sqlite3.Connection
    where: str
    values: Sequence[str]

    def latest_hour_ms(self, before_ms: int) -> int | None:
        """Return the newest hour with usage before a time."""
        select = _LATEST_HOUR.format(where=self.where)
        values = (*self.values, before_ms)
        (hour_ms,) = self.db.execute(select, values * 2).fetchone()
        return None if hour_ms is None else int(hour_ms)

    def owners(self, span: _Span, after: _Owner, limit: int) -> list[_Owner]:
        """Return the next owners that used anything in a window."""
        hours_ms = _hours_ms(*span)
        one_hour = span.kind == _HOURLY
        select = _SELECT_OWNERS.format(
            where=self.where, hours=_ONE_HOUR if one_hour else _SEVERAL_HOURS
        )
        rest = (*after, limit)
        flushed = (*self.values, *hours_ms, *hours_ms[:one_hour], *rest)
        current = (*self.values, *hours_ms, *rest)
        return self.db.execute(select, (*flushed, *current, limit)).fetchall()


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
    rows = _Rows(db, where, values)
    found: list[WindowKey] = []
    for span, after in _spans(rows, query, place):
        owners = rows.owners(span, after, limit - len(found))
        found += [WindowKey(iso(span.start), span.kind, *owner) for owner in owners]
        if len(found) == limit:
            break
    return found


def _spans(
    rows: _Rows, query: UsageQuery, place: SnapshotPlace | None
) -> Iterator[tuple[_Span, _Owner]]:
    """Yield the windows from a place on, newest first, and the owner after which each goes on."""
    wanted = WINDOW_TYPES if query.window_type is None else (query.window_type,)
    kinds = [WINDOW_TYPES.index(each) for each in wanted]
    if place is None:
        end = _LAST if query.end_time is None else parse_iso(query.end_time)
        last = _Span(min(end, _LAST), -1)
    else:
        last = _span_at(place)
        if last.kind in kinds:
            yield last, place[2:]
    while (span := _next_span(rows, kinds, last)) is not None:
        if query.start_time is not None and iso(span.start) < query.start_time:
            break
        yield span, _NOBODY
        last = span


def _next_span(rows: _Rows, kinds: Sequence[int], last: _Span) -> _Span | None:
    """Return the window that follows: the newest, and of those that start together the shortest."""
    found = []
    for kind in kinds:
        # Windows that start with the last one follow it if they are longer.
        latest = last.start if kind > last.kind else last.start - timedelta(seconds=1)
        window = WINDOW_TYPES[kind]
        _, before_ms = _hours_ms(window_start(window, _milliseconds(latest)), kind)
        hour_ms = rows.latest_hour_ms(before_ms)
        if hour_ms is not None:
            found.append(_Span(window_start(window, hour_ms), kind))
    return max(found, key=lambda span: (span.start, -span.kind), default=None)


def _span_at(place: SnapshotPlace) -> _Span:
    start, kind, *_ = place
    try:
        moment = parse_iso(newest_first_text(start))
        if 0 <= kind < len(WINDOW_TYPES) and moment <= _LAST:
            return _Span(moment, kind)
    except ValueError:
        pass
    raise ValidationError("next_key", list(place), "is not a key that a previous page returned")


def _hours_ms(start: datetime, kind: int) -> tuple[int, int]:
    return _milliseconds(start), _milliseconds(next_window(WINDOW_TYPES[kind], start))


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000
