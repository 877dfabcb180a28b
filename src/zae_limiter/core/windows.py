"""Calendar windows of usage: hourly, daily, monthly, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

WindowType = Literal["hourly", "daily", "monthly"]
WINDOW_TYPES: tuple[WindowType, ...] = get_args(WindowType)
HOUR_MS = 3_600_000
# Later hours have a month whose end no date can tell.
LAST_HOUR_MS = int(datetime(9999, 11, 30, 23, tzinfo=UTC).timestamp()) * 1000
_KEY_FORMAT = {"hourly": "%Y-%m-%dT%H:00:00Z", "daily": "%Y-%m-%d", "monthly": "%Y-%m"}


def iso(moment: datetime) -> str:
    """Return a moment as `YYYY-MM-DDTHH:MM:SSZ`."""
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def iso_ms(at_ms: int) -> str:
    """Return milliseconds since the epoch as `YYYY-MM-DDTHH:MM:SSZ`."""
    return iso(datetime.fromtimestamp(at_ms // 1000, UTC))


def parse_iso(text: str) -> datetime:
    """Return the moment that an ISO string names; a naive moment is UTC."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def hour_start_ms(at_ms: int) -> int:
    """Return the start of the hour."""
    return at_ms - at_ms % HOUR_MS


def window_start(window: WindowType, at_ms: int) -> datetime:
    """Return the start of the window that holds a moment."""
    moment = datetime.fromtimestamp(at_ms // 1000, UTC).replace(minute=0, second=0)
    if window == "daily":
        return moment.replace(hour=0)
    if window == "monthly":
        return moment.replace(day=1, hour=0)
    return moment


def window_end(window: WindowType, start: datetime) -> datetime:
    """Return the last second of a window."""
    return next_window(window, start) - timedelta(seconds=1)


def next_window(window: WindowType, start: datetime) -> datetime:
    """Return the start of the next window."""
    if window == "hourly":
        return start + timedelta(hours=1)
    if window == "daily":
        return start + timedelta(days=1)
    return (start + timedelta(days=32)).replace(day=1)


def window_key(window: WindowType, start: datetime) -> str:
    """Return a key that no window of another type has."""
    return start.strftime(_KEY_FORMAT[window])
