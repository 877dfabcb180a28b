"""Logs as lines of JSON, which CloudWatch can search by field."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

PACKAGE_LOGGER = logging.getLogger("zae_limiter")


class JsonFormatter(logging.Formatter):
    """A log record is one JSON object: time, level, message, and the fields it was given."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "timestamp": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said, default=str)


def write_json_logs() -> None:
    """Let the package's log be written as JSON lines, once for each process."""
    if any(isinstance(each.formatter, JsonFormatter) for each in PACKAGE_LOGGER.handlers):
        return
    lines = logging.StreamHandler(sys.stdout)
    lines.setFormatter(JsonFormatter())
    PACKAGE_LOGGER.addHandler(lines)
    PACKAGE_LOGGER.setLevel(logging.INFO)
    # Without this, the handler that Lambda installs would write each line again.
    PACKAGE_LOGGER.propagate = False


def log_fields(message: str, **fields: Any) -> None:
    """Log a message with fields of its own."""
    PACKAGE_LOGGER.info(message, extra={"fields": fields})
