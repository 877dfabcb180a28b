"""Receipts in SQLite, one row each."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from ...core.apply import apply
from ...core.bucket import BucketAddress
from ...core.idempotency import planned_at_ms
from ...core.receipts import Receipt, ReceiptKey, ReceiptSwap, StaleReceipt
from ...core.writes import Outcome, Write
from ..locked_buckets import swap_locked
from ..receipt_text import decode_receipt, encode_receipt
from .buckets import BucketRows
from .connection import Connection

_SELECT = "SELECT revision, content FROM receipts WHERE namespace_id = ? AND name = ?"
_UPSERT = """
    INSERT INTO receipts (namespace_id, name, revision, drops_at_ms, content)
    VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (namespace_id, name) DO UPDATE SET revision = excluded.revision,
        drops_at_ms = excluded.drops_at_ms, content = excluded.content
"""
# Several for each receipt that is kept. Without this, expired receipts would pile up.
_SWEEP = """
    DELETE FROM receipts WHERE (namespace_id, name) IN (
        SELECT namespace_id, name FROM receipts WHERE drops_at_ms <= ?
        ORDER BY drops_at_ms LIMIT 16
    )
"""


class SqliteReceipts:
    """The receipts of a file."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def read(self, key: ReceiptKey) -> Receipt | None:
        return await self._connection.read(lambda db: _ReceiptRows(db).find_receipt(key))

    async def swap(
        self, swap: ReceiptSwap, writes: Sequence[tuple[BucketAddress, Write]] = ()
    ) -> list[Outcome] | StaleReceipt:
        return await self._connection.write(
            lambda db: swap_locked(_ReceiptRows(db), BucketRows(db), apply, swap, writes)
        )


class _ReceiptRows:
    """The rows of one transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def find_receipt(self, key: ReceiptKey) -> Receipt | None:
        row = self._db.execute(_SELECT, key).fetchone()
        return None if row is None else decode_receipt(key, *row)

    def keep_receipt(self, receipt: Receipt) -> None:
        self._db.execute(_SWEEP, (planned_at_ms(receipt.revision),))
        values = (receipt.revision, receipt.drops_at_ms, encode_receipt(receipt))
        self._db.execute(_UPSERT, (*receipt.key, *values))
