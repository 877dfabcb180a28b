"""Fields of log records, so that programs can read what people read in the message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LOG_FIELD = "zae_limiter"
"""The attribute of a log record that holds the fields."""


def log_fields(event: str, **values: object) -> dict[str, Any]:
    """Return the `extra` of a log record: one attribute, a dict of an event's name and values that
    JSON can hold."""
    return {LOG_FIELD: {"event": event, **{name: _plain(value) for name, value in values.items()}}}


def _plain(value: object) -> object:
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, Mapping):
        return dict(value)
    return value if isinstance(value, str | int | float | None) else str(value)
