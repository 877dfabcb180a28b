"""The rows of `buckets`, one at a time.

What this process wrote last is kept as it was before it was encoded. A row that still
reads the same has not been changed by anybody, so it need not be decoded again.
"""

from __future__ import annotations

import sqlite3

from ...core.composite import BucketAddress
from ...flows.bounded import Bounded
from .codec import ITEM_COLUMNS, Item, ItemRow, decode_item, encode_item

KEY = "namespace_id = ? AND entity_id = ? AND resource = ? AND shard = ?"
_SELECT = f"SELECT {ITEM_COLUMNS} FROM buckets WHERE {KEY}"
_INSERT = f"""
    INSERT INTO buckets ({ITEM_COLUMNS}, namespace_id, entity_id, resource, shard)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_UPDATE = f"UPDATE buckets SET ({ITEM_COLUMNS}) = (?, ?, ?, ?) WHERE {KEY}"
# Leaving out `look_at_s` where it has not changed spares its index. That is what most writes do.
_UPDATE_REST = f"UPDATE buckets SET state = ?, shape = ?, usage_hour_ms = ? WHERE {KEY}"
_MAX_KEPT = 10_000


class BucketRows:
    """Nothing here is true until the file says the same, so a transaction that is undone, or
    another process, can do no harm. Items must not be changed."""

    def __init__(self) -> None:
        self._written: Bounded[BucketAddress, tuple[ItemRow, Item]] = Bounded(_MAX_KEPT)

    def read(self, db: sqlite3.Connection, address: BucketAddress) -> Item | None:
        """The item at an address, if there is one."""
        row = db.execute(_SELECT, address).fetchone()
        if row is None:
            return None
        written = self._written.get(address)
        if written is not None and written[0] == row:
            return written[1]
        return decode_item(address, row)

    def insert(self, db: sqlite3.Connection, address: BucketAddress, item: Item) -> None:
        """Store an item where there is none."""
        row = encode_item(item)
        db.execute(_INSERT, (*row, *address))
        self._written.put(address, (row, item))

    def update(
        self, db: sqlite3.Connection, address: BucketAddress, before: Item, after: Item
    ) -> None:
        """Store an item in the place of another."""
        row = encode_item(after)
        if after.look_at_s == before.look_at_s:
            db.execute(_UPDATE_REST, (*row[:3], *address))
        else:
            db.execute(_UPDATE, (*row, *address))
        self._written.put(address, (row, after))
