"""This module says what is wrong with a store that cannot be opened, and what would mend it."""

from __future__ import annotations

from pathlib import Path

from ...backends.dynamodb.url import DynamoUrl
from ...backends.store_url import StoreUrl
from ...core.exceptions import InfrastructureNotFoundError, RateLimiterUnavailable, ZAELimiterError
from .finding import Finding

_MISSING = (
    "Check --url or --name. `zae-limiter deploy` makes a stack on AWS,"
    " `zae-limiter namespace register NAME` any other store."
)
_DAMAGED = "Check --url or --name. If this is the store, restore it from a backup."
_SILENT = (
    "Check --url, --region and --endpoint-url, that the endpoint answers from here, and the"
    " permissions of these credentials."
)
_CLOSED_FILE = "Check the permissions of the file and of its directory, and the room on its disk."


def unopened(url: StoreUrl, error: ZAELimiterError) -> list[Finding]:
    """Return why a store was not opened and, where its file is there, the room on its disk."""
    found = [Finding("store", "problem", str(error), _remedy(url, error))]
    if isinstance(url, DynamoUrl):
        return found
    from ...backends.sqlite.url import SqliteUrl
    from .store_checks import check_room

    if isinstance(url, SqliteUrl) and Path(url.path).is_file():
        found.append(check_room(Path(url.path)))
    return found


def _remedy(url: StoreUrl, error: ZAELimiterError) -> str:
    if isinstance(error, InfrastructureNotFoundError):
        return _MISSING
    if isinstance(error, RateLimiterUnavailable):
        return _SILENT if isinstance(url, DynamoUrl) else _CLOSED_FILE
    return _DAMAGED
