"""The marks of configuration records that a manifest manages, in SQLite."""

from __future__ import annotations

import sqlite3

from ...core.models import LimiterConfig
from ...ports.repository_protocol import Declaration
from .codec import decode_config_row

ConfigRowKey = tuple[str, str, str]

SELECT_MARKS = "SELECT entity_id, resource, mark FROM managed WHERE namespace_id = ?"
_KEY = "namespace_id = ? AND entity_id = ? AND resource = ?"
_SELECT = f"""
    SELECT limits, inherit, on_unavailable, auto_update, strict_version, config_version
    FROM configs WHERE {_KEY}
"""
_SET = """
    INSERT INTO managed (namespace_id, entity_id, resource, mark) VALUES (?, ?, ?, ?)
    ON CONFLICT (namespace_id, entity_id, resource) DO UPDATE SET mark = excluded.mark
"""
_REMOVE = f"DELETE FROM managed WHERE {_KEY}"


def is_current(db: sqlite3.Connection, key: ConfigRowKey, declaration: Declaration | None) -> bool:
    """Whether a record is as a declaration has seen it."""
    if declaration is None:
        return True
    row = db.execute(_SELECT, key).fetchone()
    stored = None if row is None else decode_config_row(key, row)
    return declaration.is_current(None if stored == LimiterConfig() else stored)


def declare(db: sqlite3.Connection, key: ConfigRowKey, declaration: Declaration | None) -> None:
    """Set the mark of a declaration."""
    if declaration is not None:
        set_mark(db, key, declaration.mark)


def set_mark(db: sqlite3.Connection, key: ConfigRowKey, mark: str | None) -> None:
    """Set a mark, or remove it."""
    if mark is None:
        db.execute(_REMOVE, key)
    else:
        db.execute(_SET, (*key, mark))
