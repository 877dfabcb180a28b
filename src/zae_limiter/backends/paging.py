"""Pages are cut out of snapshots that a store has in hand."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.exceptions import ValidationError
from ..core.models import UsageSnapshot
from ..ports.repository_protocol import UsageQuery


def page_snapshots(
    found: Sequence[UsageSnapshot], query: UsageQuery, limit: int, cursor: str | None
) -> tuple[list[UsageSnapshot], str | None]:
    """Return the snapshots within the query's times, from the cursor on, and the next cursor."""
    start, end = query.start_time, query.end_time
    wanted = [
        snapshot
        for snapshot in found
        if (start is None or snapshot.window_start >= start)
        and (end is None or snapshot.window_start <= end)
    ]
    skip = _position(cursor)
    more = skip + limit < len(wanted)
    return wanted[skip : skip + limit], str(skip + limit) if more else None


def _position(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isascii() or not cursor.isdigit():
        raise ValidationError("next_key", cursor, "is not a key that a previous page returned")
    return int(cursor)
