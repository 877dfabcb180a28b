"""Receipts in memory."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.bucket import BucketAddress
from ...core.idempotency import planned_at_ms
from ...core.receipts import Receipt, ReceiptKey, ReceiptSwap, StaleReceipt
from ...core.writes import Outcome, Write
from ..locked_buckets import Apply, BucketRecords, swap_locked
from .tables import Tables, drop

_FIRST_SWEEP_AT = 1024


class MemoryReceipts:
    """Receipts by key."""

    def __init__(self, tables: Tables, buckets: BucketRecords, apply: Apply) -> None:
        self._tables = tables
        self._buckets = buckets
        self._apply = apply
        self._sweep_at = _FIRST_SWEEP_AT

    async def read(self, key: ReceiptKey) -> Receipt | None:
        with self._tables.lock:
            return self.find_receipt(key)

    async def swap(
        self, swap: ReceiptSwap, writes: Sequence[tuple[BucketAddress, Write]] = ()
    ) -> list[Outcome] | StaleReceipt:
        with self._tables.lock:
            return swap_locked(self, self._buckets, self._apply, swap, writes)

    def find_receipt(self, key: ReceiptKey) -> Receipt | None:
        return self._tables.receipts.get(key)

    def keep_receipt(self, receipt: Receipt) -> None:
        receipts = self._tables.receipts
        receipts[receipt.key] = receipt
        if len(receipts) < self._sweep_at:
            return
        # Expired receipts are dropped each time their number has doubled: O(1) for each.
        now_ms = planned_at_ms(receipt.revision)
        drop(receipts, lambda key: receipts[key].drops_at_ms <= now_ms)
        self._sweep_at = max(_FIRST_SWEEP_AT, 2 * len(receipts))
