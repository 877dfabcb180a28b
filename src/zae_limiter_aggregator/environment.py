"""The settings of the Lambda, which the deployment gives it as environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zae_limiter.core.exceptions import ValidationError
from zae_limiter.core.windows import WINDOW_TYPES, WindowType
from zae_limiter.flows.stream.aggregate import RETENTION_DAYS, StreamSettings

_WINDOWS = "hourly,daily"


@dataclass(frozen=True, slots=True)
class LambdaSettings:
    """The table, the settings of its stream's reader, and the bucket of S3 for audit events."""

    table_name: str
    stream: StreamSettings
    archive_bucket: str | None = None


def read_environment(environment: Mapping[str, str]) -> LambdaSettings:
    """Return the settings of the variables.

    TABLE_NAME            the table
    SNAPSHOT_WINDOWS      hourly,daily by default, of hourly, daily and monthly
    SNAPSHOT_TTL_DAYS     how long a snapshot is kept after its window; 90 by default
    ENABLE_REFILL         true: busy buckets are refilled
    ENABLE_ARCHIVAL       true: expired audit events are kept
    ARCHIVE_BUCKET_NAME   in this bucket
    """
    table_name = environment.get("TABLE_NAME")
    if not table_name:
        raise ValidationError("TABLE_NAME", table_name, "must name the table")
    stream = StreamSettings(
        _windows(environment.get("SNAPSHOT_WINDOWS") or _WINDOWS),
        _days(environment.get("SNAPSHOT_TTL_DAYS") or str(RETENTION_DAYS)),
        refills=_is_on(environment, "ENABLE_REFILL"),
    )
    bucket = environment.get("ARCHIVE_BUCKET_NAME") or None
    archives = _is_on(environment, "ENABLE_ARCHIVAL")
    return LambdaSettings(table_name, stream, bucket if archives else None)


def _is_on(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").lower() == "true"


def _windows(text: str) -> tuple[WindowType, ...]:
    named = {name.strip() for name in text.split(",")}
    if not named <= set(WINDOW_TYPES):
        raise ValidationError("SNAPSHOT_WINDOWS", text, f"must be some of {WINDOW_TYPES}")
    return tuple(window for window in WINDOW_TYPES if window in named)


def _days(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValidationError("SNAPSHOT_TTL_DAYS", text, "must be a number of days")
    return int(text)
