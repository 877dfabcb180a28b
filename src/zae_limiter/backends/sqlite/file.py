"""The database file: checked whether it is ours, created, opened.

A file that is not ours is never touched, not even locked. The check reads the file through SQLite,
as immutable: had it been opened directly, closing it would drop the locks that other connections of
this process hold on it.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..._version import __version__
from ...core.exceptions import (
    IncompatibleSchemaError,
    InfrastructureNotFoundError,
    StorageUnavailable,
    StoredDataError,
    ValidationError,
)
from .errors import code
from .waiting import patiently

APPLICATION_ID = int.from_bytes(b"zael")
FILE_VERSION = 3


def locate(path: str) -> str:
    """Return the absolute path, so that a later change of directory makes no difference."""
    if path == ":memory:":
        raise ValidationError("url", path, "a store in memory is memory://")
    if not path or "\0" in path:
        raise ValidationError("url", path, "must name a file")
    return os.path.abspath(path)


def identity(path: str) -> tuple[int, int] | None:
    """Return the identity of the file at the path; None when there is none."""
    found = _status(path)
    return None if found is None else (found.st_dev, found.st_ino)


def connect(path: str, *, create: bool, deadline: float) -> sqlite3.Connection:
    """Open the file. `create`: make a store of it first if the file is new."""
    if not _is_new(path):
        _check_ours(path)
    elif not create:
        raise InfrastructureNotFoundError(path)
    db = _connect(path, "rwc" if create else "rw")
    try:
        _prepare(db, path, create=create, deadline=deadline)
    except BaseException:
        db.close()
        raise
    return db


def _is_new(path: str) -> bool:
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        advice = f"there is no directory {directory}: make it first"
        raise InfrastructureNotFoundError(path, advice)
    found = _status(path)
    if found is None:
        return True
    if not stat.S_ISREG(found.st_mode):
        raise StoredDataError(path, "is not a file")
    return found.st_size == 0


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StorageUnavailable(
            f"{path} cannot be reached: {error}", error, retryable=False
        ) from error


def _check_ours(path: str) -> None:
    application_id, version, page_bytes = _header(path)
    if application_id != APPLICATION_ID:
        raise StoredDataError(path, "is not a zae-limiter store")
    if version > FILE_VERSION:
        raise IncompatibleSchemaError(
            __version__,
            str(version),
            f"{path} has schema version {version}, this client knows {FILE_VERSION}:"
            " upgrade zae-limiter",
        )
    if version != FILE_VERSION:
        raise StoredDataError(
            path,
            f"has schema version {version}, which this client cannot read (it knows"
            f" {FILE_VERSION}): use another file, or delete this one to start anew",
        )
    # SQLite would read the missing rest of a page as zeros. Only a journal may hold that rest.
    if not _has_journal(path) and _length(path) % page_bytes:
        raise StoredDataError(path, "is cut short")


def _header(path: str) -> tuple[int, int, int]:
    """Return application id, schema version, and the length of a page."""
    with closing(_connect(path, "ro&immutable=1")) as db:
        try:
            # While a journal is being saved, the file may be shorter than its header says.
            # Without this pragma, SQLite would refuse to read it.
            db.execute("PRAGMA writable_schema = ON")
            names = ("application_id", "user_version", "page_size")
            application_id, version, page_bytes = (_pragma(db, name) for name in names)
            return application_id, version, page_bytes
        except sqlite3.DatabaseError as error:
            if code(error) == sqlite3.SQLITE_NOTADB:
                raise StoredDataError(path, "is not a zae-limiter store") from error
            raise


def _has_journal(path: str) -> bool:
    return any(_length(path + suffix) for suffix in ("-wal", "-journal"))


def _length(path: str) -> int:
    found = _status(path)
    return 0 if found is None else found.st_size


def _connect(path: str, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{Path(path).as_uri()}?mode={mode}",
        uri=True,
        timeout=0,
        isolation_level=None,
        check_same_thread=False,
    )


def _prepare(db: sqlite3.Connection, path: str, *, create: bool, deadline: float) -> None:
    # The file is empty, too, when a crash interrupted its creation, which SQLite then undoes.
    if patiently(deadline, lambda: _pragma(db, "page_count")) == 0:
        if not create:
            raise InfrastructureNotFoundError(path)
        patiently(deadline, lambda: _make(db))
    if patiently(deadline, lambda: _pragma(db, "journal_mode = WAL")) != "wal":
        raise StorageUnavailable(
            f"{path} cannot be shared: its file system has no shared memory", retryable=False
        )
    db.execute("PRAGMA synchronous = NORMAL")
    # A file that an older client made has no such table yet.
    patiently(deadline, lambda: db.executescript(_statements("receipts.sql")))


def _make(db: sqlite3.Connection) -> None:
    """Create the tables. Several processes may do so at once: the later ones find them there."""
    try:
        db.executescript(_making())
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@cache
def _statements(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


@cache
def _making() -> str:
    return f"""
        BEGIN EXCLUSIVE;
        {_statements("schema.sql")}
        PRAGMA application_id = {APPLICATION_ID};
        PRAGMA user_version = {FILE_VERSION};
        COMMIT;
    """


def _pragma(db: sqlite3.Connection, text: str) -> Any:
    return db.execute(f"PRAGMA {text}").fetchone()[0]
