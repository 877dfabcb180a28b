"""Pages are cut out of snapshots that a store has in hand.

A cursor is the place of the last snapshot of a page. So usage that is counted between two pages
moves no page.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..core.exceptions import ValidationError
from ..core.models import UsageSnapshot
from ..core.usage import newest_first
from ..ports.repository_protocol import UsageQuery

_Place = tuple[str, int, str, str]


def page_snapshots(
    found: Sequence[UsageSnapshot], query: UsageQuery, limit: int, cursor: str | None
) -> tuple[list[UsageSnapshot], str | None]:
    """Return those of the sorted snapshots that are within the times asked for and come after the
    cursor, and the next cursor."""
    start, end = query.start_time, query.end_time
    place = None if cursor is None else _place(cursor)
    wanted = [
        snapshot
        for snapshot in found
        if (start is None or snapshot.window_start >= start)
        and (end is None or snapshot.window_start <= end)
        and (place is None or newest_first(snapshot) > place)
    ]
    page = wanted[:limit]
    return page, json.dumps(newest_first(page[-1])) if len(wanted) > limit else None


def _place(cursor: str) -> _Place:
    try:
        start, kind, entity_id, resource = json.loads(cursor)
        place = (str(start), int(kind), str(entity_id), str(resource))
    except (RecursionError, TypeError, ValueError) as error:
        reason = "is not a key that a previous page returned"
        raise ValidationError("next_key", cursor, reason) from error
    return place
