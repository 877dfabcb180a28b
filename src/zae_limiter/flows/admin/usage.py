"""Usage snapshots and their sums."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from ...core.exceptions import ValidationError
from ...core.models import UsageSnapshot, UsageSummary
from ...core.validation import validate_identifier, validate_resource, validate_text
from ...core.windows import WINDOW_TYPES, WindowType, iso, parse_iso
from ...ports.repository_protocol import UsageQuery
from ..scope import Scope, bounded
from .audit import check_page_size


def make_query(
    entity_id: str | None,
    resource: str | None,
    window_type: str | None,
    start_time: datetime | str | None,
    end_time: datetime | str | None,
) -> UsageQuery:
    """Check what is asked for."""
    if entity_id is None and resource is None:
        raise ValueError("give entity_id, resource or both")
    if entity_id is not None:
        validate_identifier(entity_id)
    if resource is not None:
        validate_resource(resource)
    return UsageQuery(
        entity_id,
        resource,
        _window_type(window_type),
        _time("start_time", start_time),
        _time("end_time", end_time),
    )


def _window_type(value: str | None) -> WindowType | None:
    if value is None:
        return None
    for window in WINDOW_TYPES:
        if value == window:
            return window
    raise ValidationError("window_type", value, f"must be one of {', '.join(WINDOW_TYPES)}")


def _time(field: str, moment: datetime | str | None) -> str | None:
    """A moment as text; a naive one is UTC."""
    if moment is None:
        return None
    try:
        found = moment if isinstance(moment, datetime) else parse_iso(moment)
        if field == "start_time" and found.microsecond:
            # A window that starts with the second has started before.
            found += timedelta(seconds=1)
        return iso(found if found.tzinfo else found.replace(tzinfo=UTC))
    except (OverflowError, TypeError, ValueError) as error:
        raise ValidationError(field, moment, "must be an ISO 8601 time") from error


@bounded
async def get_usage_snapshots(
    scope: Scope, query: UsageQuery, limit: int, next_key: dict[str, Any] | None
) -> tuple[list[UsageSnapshot], dict[str, Any] | None]:
    """Read one page of snapshots, newest first."""
    check_page_size(limit)
    cursor = None if next_key is None else _cursor(next_key)
    found, following = await scope.store.usage.read(scope.namespace_id, query, limit, cursor)
    return found, None if following is None else {"cursor": following}


def _cursor(next_key: object) -> str:
    cursor = next_key.get("cursor") if isinstance(next_key, dict) else None
    if cursor is None:
        raise ValidationError("next_key", next_key, "is not a key that a previous page returned")
    return validate_text("next_key", cursor)


async def get_usage_summary(scope: Scope, query: UsageQuery) -> UsageSummary:
    """The snapshots of the query, all added up."""
    return await scope.store.usage.summary(scope.namespace_id, query)
