"""The rows of `buckets`, one at a time."""

from __future__ import annotations

import sqlite3

from ...core.bucket import BucketAddress
from .codec import ITEM_COLUMNS, Item, decode_item, encode_bucket, encode_item

KEY = "namespace_id = ? AND entity_id = ? AND resource = ? AND shard = ?"
_SELECT = f"SELECT {ITEM_COLUMNS} FROM buckets WHERE {KEY}"
_INSERT = f"""
    INSERT INTO buckets ({ITEM_COLUMNS}, namespace_id, entity_id, resource, shard)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_UPDATE = f"UPDATE buckets SET ({ITEM_COLUMNS}) = (?, ?, ?, ?, ?, ?) WHERE {KEY}"
# What most writes change. Leaving out `look_at_s` spares its index.
_UPDATE_BUCKET = f"UPDATE buckets SET state = ?, recent = ? WHERE {KEY}"


def read_item(db: sqlite3.Connection, address: BucketAddress) -> Item | None:
    """The item at an address, if there is one."""
    row = db.execute(_SELECT, address).fetchone()
    return None if row is None else decode_item(address, row)


def insert_item(db: sqlite3.Connection, address: BucketAddress, item: Item) -> None:
    """Store an item where there is none."""
    db.execute(_INSERT, (*encode_item(item), *address))


def update_item(db: sqlite3.Connection, address: BucketAddress, before: Item, after: Item) -> None:
    """Store an item in the place of another."""
    if after[1:] == before[1:]:
        db.execute(_UPDATE_BUCKET, (*encode_bucket(after.bucket), *address))
    else:
        db.execute(_UPDATE, (*encode_item(after), *address))
