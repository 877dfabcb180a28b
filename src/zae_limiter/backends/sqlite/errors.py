"""What each failure of SQLite means to a caller."""

from __future__ import annotations

import sqlite3

from ...core.exceptions import StorageUnavailable, StoredDataError

# None of these is worth sending again at once: a lock has been waited for already.
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
_DAMAGED = {
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_FORMAT: "is damaged",
    sqlite3.SQLITE_NOTADB: "is not a SQLite database",
}


def code(error: sqlite3.Error) -> int | None:
    """The primary result code; None when the error is not SQLite's own."""
    extended = getattr(error, "sqlite_errorcode", None)
    return None if extended is None else extended & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    """True when another connection is in the way, which passes."""
    return code(error) == sqlite3.SQLITE_BUSY


def translate(path: str, error: sqlite3.Error) -> Exception:
    """The domain's error for one of SQLite's; the same error if it has no meaning there."""
    result = code(error)
    if result in _UNAVAILABLE:
        return StorageUnavailable(f"{path} {_UNAVAILABLE[result]}: {error}", error, retryable=False)
    if result in _DAMAGED:
        return StoredDataError(path, f"it {_DAMAGED[result]} ({error})")
    if _is_unreadable(result, str(error)):
        return StoredDataError(path, str(error))
    return error


def _is_unreadable(result: int | None, message: str) -> bool:
    """The statements are our own, so a table that is missing was taken out of the file."""
    if result == sqlite3.SQLITE_ERROR:
        return message.startswith("no such ")
    return result is None and message.startswith("Could not decode to UTF-8")
