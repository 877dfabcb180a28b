"""Statements on single rows of `buckets`."""

from __future__ import annotations

import sqlite3

from ...core.bucket import BucketAddress
from .codec import BUCKET_COLUMNS, BucketRow, decode_bucket_row, encode_bucket_row, encode_state

KEY = "namespace_id = ? AND entity_id = ? AND resource = ? AND shard = ?"
_SELECT = f"SELECT {BUCKET_COLUMNS} FROM buckets WHERE {KEY}"
_INSERT = f"""
    INSERT INTO buckets ({BUCKET_COLUMNS}, namespace_id, entity_id, resource, shard)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_UPDATE = f"UPDATE buckets SET ({BUCKET_COLUMNS}) = (?, ?, ?, ?, ?, ?) WHERE {KEY}"
# The columns that most writes change. Leaving out `look_at_s` spares its index.
_UPDATE_BUCKET = f"UPDATE buckets SET state = ?, recent = ? WHERE {KEY}"


def read_bucket_row(db: sqlite3.Connection, address: BucketAddress) -> BucketRow | None:
    """Return the row at an address, if there is one."""
    row = db.execute(_SELECT, address).fetchone()
    return None if row is None else decode_bucket_row(address, row)


def insert_bucket_row(db: sqlite3.Connection, address: BucketAddress, item: BucketRow) -> None:
    """Insert a row."""
    db.execute(_INSERT, (*encode_bucket_row(item), *address))


def update_bucket_row(
    db: sqlite3.Connection, address: BucketAddress, before: BucketRow, after: BucketRow
) -> None:
    """Replace a row."""
    if after[1:] == before[1:]:
        db.execute(_UPDATE_BUCKET, (*encode_state(after.bucket), *address))
    else:
        db.execute(_UPDATE, (*encode_bucket_row(after), *address))
