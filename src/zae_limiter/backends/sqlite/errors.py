"""Failures of SQLite are translated into errors of the domain, by table."""

from __future__ import annotations

import sqlite3

from ...core.exceptions import StorageUnavailable, StoredDataError

# None of these is retryable: the connection has waited for locks already.
_UNAVAILABLE = {
    sqlite3.SQLITE_BUSY: "is locked by another process",
    sqlite3.SQLITE_LOCKED: "is locked by another connection",
    sqlite3.SQLITE_PROTOCOL: "is locked by too many processes",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_PERM: "may not be used",
    sqlite3.SQLITE_AUTH: "may not be used",
    sqlite3.SQLITE_READONLY: "cannot be written to",
    sqlite3.SQLITE_FULL: "cannot grow",
    sqlite3.SQLITE_IOERR: "cannot be read or written",
    sqlite3.SQLITE_NOLFS: "is too large for its file system",
    sqlite3.SQLITE_NOMEM: "needs more memory than there is",
}
_FORBIDDEN = {sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY}
_DAMAGED = {
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_FORMAT: "is damaged",
    sqlite3.SQLITE_NOTADB: "is not a SQLite database",
}


def code(error: sqlite3.Error) -> int | None:
    """Return the primary result code; None when the error is not SQLite's own."""
    extended = getattr(error, "sqlite_errorcode", None)
    return None if extended is None else extended & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another connection holds the lock, which passes."""
    return code(error) == sqlite3.SQLITE_BUSY


def busy_error(message: str) -> sqlite3.OperationalError:
    """Return the error that SQLite raises when another connection holds the lock."""
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error


def translate(path: str, error: sqlite3.Error) -> Exception:
    """Return the domain's error for an error of SQLite; the error itself if there is none."""
    result = code(error)
    if result in _UNAVAILABLE:
        return StorageUnavailable(
            f"{path} {_UNAVAILABLE[result]}: {error}",
            error,
            retryable=False,
            is_outage=result not in _FORBIDDEN,
        )
    if result in _DAMAGED:
        return StoredDataError(path, f"it {_DAMAGED[result]} ({error})")
    if _is_unreadable(result, str(error)):
        return StoredDataError(path, str(error))
    return error


def _is_unreadable(result: int | None, message: str) -> bool:
    """Return whether the file lacks a table: the statements are our own, so it was removed."""
    if result == sqlite3.SQLITE_ERROR:
        return message.startswith("no such ")
    return result is None and message.startswith("Could not decode to UTF-8")
