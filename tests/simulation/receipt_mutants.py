"""Mutants about receipts: limiters that charge a key, or end a lease, more than once."""

from __future__ import annotations

from typing import Any

from zae_limiter.core.exceptions import LeaseExpiredError, StorageUnavailable
from zae_limiter.core.receipts import (
    HeldReceipt,
    Receipt,
    ReceiptState,
    ReceiptSwap,
    StaleReceipt,
    ledger_entries,
)
from zae_limiter.flows.scope import Scope


async def charge_again(scope: Scope, request: Any, stored: Receipt | None) -> StaleReceipt:
    """Charge a key whatever its receipt says."""
    return StaleReceipt(stored)


async def give_up_unfenced(
    scope: Scope, swap: ReceiptSwap, error: StorageUnavailable
) -> Receipt | StaleReceipt:
    """Take a swap that is not there yet for one that never will be."""
    stored = await scope.store.receipts.read(swap.after.key)
    landed = stored is not None and swap.after.revision in stored.charges
    return stored if landed and stored is not None else StaleReceipt(stored)


async def settle_unasked(scope: Scope, held: HeldReceipt) -> bool:
    """Correct a charge without ending its receipt."""
    return True


async def return_alone(scope: Scope, held: HeldReceipt) -> bool:
    """Give a charge back although it has other holders."""
    if held.receipt.state is not ReceiptState.OPEN or held.is_moot:
        raise LeaseExpiredError
    after = held.receipt._replace(
        state=ReceiptState.RETURNED, revision=scope.io.operation_id(), ended_by=held.ender
    )
    await scope.store.receipts.swap(ReceiptSwap(held.receipt, after))
    return True


def forget_later_charges(receipt: Receipt) -> list[Any]:
    """Know only the first level that was charged."""
    return ledger_entries(receipt)[:1]


def never_late(held: HeldReceipt, now_ms: int) -> None:
    """Let a lease be ended after its time."""
    if held.holder not in held.receipt.holders or held.receipt.state is not ReceiptState.OPEN:
        raise LeaseExpiredError


RECEIPT_MUTANTS: dict[str, tuple[str, Any]] = {
    "a key is charged whenever it is used": (
        "zae_limiter.flows.receipts.charge.join_if_charged",
        charge_again,
    ),
    "a lost charge is not fenced": (
        "zae_limiter.flows.receipts.swap.whether_landed",
        give_up_unfenced,
    ),
    "each process that commits corrects the charge": (
        "zae_limiter.flows.acquire.lease.settle_held",
        settle_unasked,
    ),
    "each holder gives the charge back": (
        "zae_limiter.flows.acquire.lease.return_held",
        return_alone,
    ),
    "a refund forgets the ancestors": (
        "zae_limiter.flows.acquire.lease.ledger_entries",
        forget_later_charges,
    ),
    "a lease can be ended after its time": (
        "zae_limiter.flows.receipts.end.require_held",
        never_late,
    ),
}
