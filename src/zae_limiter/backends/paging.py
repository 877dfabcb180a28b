"""Pages are cut out of snapshots that a store has in hand.

A cursor is the place of the last snapshot of a page. So usage that is counted between two pages
moves no page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from ..core.exceptions import ValidationError
from ..core.models import UsageSnapshot
from ..core.usage import newest_first, newest_first_text
from ..ports.repository_protocol import UsageQuery

SnapshotPlace = tuple[str, int, str, str]


def page_snapshots(
    found: Sequence[UsageSnapshot], query: UsageQuery, limit: int, cursor: str | None
) -> tuple[list[UsageSnapshot], str | None]:
    """Return those of the sorted snapshots that are within the times asked for and come after the
    cursor, and the next cursor."""
    place = None if cursor is None else snapshot_place(cursor)
    wanted = [
        snapshot
        for snapshot in within_times(found, query)
        if place is None or newest_first(snapshot) > place
    ]
    page = wanted[:limit]
    return page, json.dumps(newest_first(page[-1])) if len(wanted) > limit else None


def snapshot_cursor(key: tuple[str, int, str, str]) -> str:
    """Return the cursor after the window that starts then, of that type and that owner."""
    start, *rest = key
    return json.dumps((newest_first_text(start), *rest))


def within_times(found: Iterable[UsageSnapshot], query: UsageQuery) -> Iterator[UsageSnapshot]:
    """Yield the snapshots whose windows begin within the times asked for."""
    start, end = query.start_time, query.end_time
    for snapshot in found:
        if (start is None or snapshot.window_start >= start) and (
            end is None or snapshot.window_start <= end
        ):
            yield snapshot


def snapshot_place(cursor: str) -> SnapshotPlace:
    """Return the place that a cursor names."""
    try:
        start, kind, entity_id, resource = json.loads(cursor)
        place = (str(start), int(kind), str(entity_id), str(resource))
    except (RecursionError, TypeError, ValueError) as error:
        reason = "is not a key that a previous page returned"
        raise ValidationError("next_key", cursor, reason) from error
    return place
