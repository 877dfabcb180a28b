"""The rows of `buckets`, one at a time.

What this process wrote last is kept as it was before it was encoded. A row that still
reads the same has not been changed by anybody, so it need not be decoded again.
"""

from __future__ import annotations

import sqlite3

from ...core.composite import BucketAddress
from ...flows.bounded import Bounded
from .codec import Item, decode_item, encode_state, expiry

KEY = "namespace_id = ? AND entity_id = ? AND resource = ? AND shard = ?"
_SELECT = f"SELECT state, usage_hour_ms FROM buckets WHERE {KEY}"
_INSERT = """
    INSERT INTO buckets (
        state, usage_hour_ms, expires_at_s, namespace_id, entity_id, resource, shard
    ) VALUES (?, ?, ?, ?, ?, ?, ?)
"""
# Leaving out what has not changed spares its index, and is what most writes do.
_UPDATE_STATE = f"UPDATE buckets SET state = ? WHERE {KEY}"
_UPDATE = f"UPDATE buckets SET state = ?, usage_hour_ms = ?, expires_at_s = ? WHERE {KEY}"
_MAX_KEPT = 10_000


class BucketRows:
    """Nothing here is true until the file says the same, so a transaction that is undone, or
    another process, can do no harm. Items must not be changed."""

    def __init__(self) -> None:
        self._written: Bounded[BucketAddress, tuple[tuple[str, int], Item]] = Bounded(_MAX_KEPT)

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
        state = encode_state(item)
        db.execute(_INSERT, (state, item.hour_ms, expiry(item.bucket), *address))
        self._written.put(address, ((state, item.hour_ms), item))

    def update(
        self, db: sqlite3.Connection, address: BucketAddress, before: Item, after: Item
    ) -> None:
        """Store an item in the place of another."""
        state, expires_at_s = encode_state(after), expiry(after.bucket)
        if (before.hour_ms, expiry(before.bucket)) == (after.hour_ms, expires_at_s):
            db.execute(_UPDATE_STATE, (state, *address))
        else:
            db.execute(_UPDATE, (state, after.hour_ms, expires_at_s, *address))
        self._written.put(address, ((state, after.hour_ms), after))
