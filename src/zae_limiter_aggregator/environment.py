"""The settings of the Lambda, which the deployment gives it as environment variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from zae_limiter.core.exceptions import ValidationError
from zae_limiter.core.windows import WINDOW_TYPES, WindowType
from zae_limiter.flows.stream.aggregate import (
    MAX_RETENTION_DAYS,
    RETENTION_DAYS,
    StreamSettings,
)

_WINDOWS = "hourly,daily"
_TABLE_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_DAYS = re.compile(r"[0-9]{1,5}")


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
    table_name = environment.get("TABLE_NAME", "")
    if not _TABLE_NAME.fullmatch(table_name):
        raise ValidationError("TABLE_NAME", table_name, "must be the name of a table")
    stream = StreamSettings(
        _windows(environment.get("SNAPSHOT_WINDOWS") or _WINDOWS),
        _days(environment.get("SNAPSHOT_TTL_DAYS") or str(RETENTION_DAYS)),
        refills=_is_on(environment, "ENABLE_REFILL"),
    )
    bucket = environment.get("ARCHIVE_BUCKET_NAME") or None
    archives = _is_on(environment, "ENABLE_ARCHIVAL")
    if archives and bucket is None:
        raise ValidationError("ARCHIVE_BUCKET_NAME", bucket, "must name the bucket to archive to")
    return LambdaSettings(table_name, stream, bucket if archives else None)


def _is_on(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name, "").lower()
    if text not in ("", "true", "false"):
        raise ValidationError(name, text, "must be true or false")
    return text == "true"


def _windows(text: str) -> tuple[WindowType, ...]:
    named = {name.strip() for name in text.split(",")}
    if not named <= set(WINDOW_TYPES):
        raise ValidationError("SNAPSHOT_WINDOWS", text, f"must be some of {WINDOW_TYPES}")
    return tuple(window for window in WINDOW_TYPES if window in named)


def _days(text: str) -> int:
    if not _DAYS.fullmatch(text) or not 1 <= int(text) <= MAX_RETENTION_DAYS:
        raise ValidationError("SNAPSHOT_TTL_DAYS", text, f"must be 1 to {MAX_RETENTION_DAYS} days")
    return int(text)
