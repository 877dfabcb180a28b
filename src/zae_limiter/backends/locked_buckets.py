"""Bucket writes of stores that can lock: read, apply, keep.

A store calls these functions while it holds its lock, or inside its transaction. So each write
is atomic, and `core.apply` alone decides what it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ..core.bucket import Bucket, BucketAddress
from ..core.idempotency import fenced
from ..core.receipts import Receipt, ReceiptKey, ReceiptSwap, StaleReceipt
from ..core.writes import Granted, Outcome, Write

Apply = Callable[[Write, Bucket | None], Outcome]


class BucketRecords(Protocol):
    """The bucket records of a store whose lock is held."""

    def find(self, address: BucketAddress, /) -> Bucket | None:
        """Return the bucket at an address, if there is one."""

    def keep(
        self, address: BucketAddress, at_ms: int, before: Bucket | None, after: Bucket, /
    ) -> None:
        """Store what a write has made of the bucket that was found, and count what it used."""

    def replace(self, address: BucketAddress, bucket: Bucket, /) -> None:
        """Store the bucket that was found with another fence: nothing was used."""


class ReceiptRecords(Protocol):
    """The receipts of a store whose lock is held."""

    def find_receipt(self, key: ReceiptKey, /) -> Receipt | None:
        """Return the receipt with a key, if there is one."""

    def keep_receipt(self, receipt: Receipt, /) -> None:
        """Store a receipt in place of any other with its key."""


def write_locked(
    records: BucketRecords, apply: Apply, address: BucketAddress, write: Write
) -> Outcome:
    """Carry out one write."""
    before = records.find(address)
    outcome = apply(write, before)
    if isinstance(outcome, Granted) and outcome.bucket is not before:
        records.keep(address, write.at_ms, before, outcome.bucket)
    return outcome


def fence_locked(records: BucketRecords, address: BucketAddress, operation: str) -> Bucket | None:
    """Move the fence of one item past an operation."""
    before = records.find(address)
    if before is None:
        return None
    after = fenced(before, operation)
    if after is not before:
        records.replace(address, after)
    return after


def write_all_locked(
    records: BucketRecords, apply: Apply, writes: Sequence[tuple[BucketAddress, Write]]
) -> list[Outcome]:
    """Carry out all writes or none."""
    found = [records.find(address) for address, _ in writes]
    outcomes = [apply(write, bucket) for (_, write), bucket in zip(writes, found, strict=True)]
    granted = [outcome.bucket for outcome in outcomes if isinstance(outcome, Granted)]
    if len(granted) == len(writes):
        kept = zip(writes, found, granted, strict=True)
        # New buckets last: creating one drops expired ones, which may be among these.
        for (address, write), before, after in sorted(kept, key=lambda each: each[1] is None):
            if after is not before:
                records.keep(address, write.at_ms, before, after)
    return outcomes


def swap_locked(
    receipts: ReceiptRecords,
    records: BucketRecords,
    apply: Apply,
    swap: ReceiptSwap,
    writes: Sequence[tuple[BucketAddress, Write]],
) -> list[Outcome] | StaleReceipt:
    """Keep a receipt and carry out all writes, or neither."""
    stored = receipts.find_receipt(swap.after.key)
    if swap.is_stale(stored):
        return StaleReceipt(stored)
    outcomes = write_all_locked(records, apply, writes)
    if all(isinstance(outcome, Granted) for outcome in outcomes):
        receipts.keep_receipt(swap.after)
    return outcomes
