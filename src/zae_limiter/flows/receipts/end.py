"""The end of a lease with a receipt: one lease object wins the swap, and corrects the charge."""

from __future__ import annotations

from ...core.exceptions import LeaseExpiredError, StorageUnavailable
from ...core.ledger import Ledger
from ...core.receipts import (
    HeldReceipt,
    Receipt,
    ReceiptState,
    ReceiptSwap,
    is_shared,
    ledger_entries,
    released,
    settled,
)
from ..acquire.settle import refund
from ..scope import Scope
from .swap import swap_surely

# Each further attempt means that another client has changed the receipt meanwhile.
_MAX_ATTEMPTS = 48
_ENDED = "Lease is no longer active: it has been ended, here or elsewhere"
_COMMITTED = "Lease is no longer active: its charge has been committed"
_LATE = "Lease is no longer active: its lease_ttl has passed, and the charge stands"


def require_held(held: HeldReceipt, now_ms: int) -> None:
    """Raise `LeaseExpiredError` unless the holder may still use the lease and end it."""
    _require_in_time(held, now_ms)
    receipt = held.receipt
    if receipt.state is not ReceiptState.OPEN or held.holder not in receipt.holders:
        raise LeaseExpiredError(_ENDED)


def _require_in_time(held: HeldReceipt, now_ms: int) -> None:
    """Raise `LeaseExpiredError` after the lease's time, whatever became of it meanwhile."""
    if now_ms >= held.receipt.ends_by_ms:
        raise LeaseExpiredError(_LATE)


def _has_lost(held: HeldReceipt) -> bool:
    """Return whether another holder has committed the charge."""
    receipt = held.receipt
    return receipt.state is ReceiptState.SETTLED and held.holder in receipt.holders


def adopt_receipt(held: HeldReceipt, stored: Receipt | None) -> None:
    """Go on with the receipt as it is stored now. Raises `LeaseExpiredError` if that is none, or
    one of another charge."""
    if stored is None or stored.lease_id != held.receipt.lease_id:
        raise LeaseExpiredError(_ENDED)
    held.receipt = stored


def take_up(receipt: Receipt | None, holder: str, ender: str, now_ms: int) -> HeldReceipt:
    """Return the receipt as a further lease object of a holder sees it. Raises
    `LeaseExpiredError`."""
    if receipt is None:
        raise LeaseExpiredError(_ENDED)
    held = HeldReceipt(receipt, holder, ender)
    _require_in_time(held, now_ms)
    if not _has_lost(held):
        require_held(held, now_ms)
    return held


async def settle_held(scope: Scope, held: HeldReceipt) -> bool:
    """Commit the charge. True when this lease object has done so, and is to write the corrections;
    False when another holder has, whose word stands."""
    if held.is_moot:
        return False
    for _ in range(_MAX_ATTEMPTS):
        receipt = held.receipt
        if receipt.state is ReceiptState.SETTLED and receipt.ended_by == held.ender:
            return True
        _require_in_time(held, scope.io.now_ms())
        if _has_lost(held):
            return False
        require_held(held, scope.io.now_ms())
        after = settled(receipt, held.holder, held.ender, scope.io.operation_id())
        if await _swap(scope, held, after):
            return True
    raise StorageUnavailable("the receipt is too contended")


async def return_held(scope: Scope, held: HeldReceipt) -> bool:
    """Leave the charge to its other holders. True when there are none, so that this lease object is
    to give the tokens back."""
    if held.is_moot:
        raise LeaseExpiredError(_COMMITTED)
    for _ in range(_MAX_ATTEMPTS):
        receipt = held.receipt
        if receipt.state is ReceiptState.RETURNED and receipt.ended_by == held.ender:
            return True
        require_held(held, scope.io.now_ms())
        if is_shared(held.holder):
            return False
        after = released(receipt, held.holder, held.ender, scope.io.operation_id())
        if await _swap(scope, held, after):
            return held.receipt.ended_by == held.ender
    raise StorageUnavailable("the receipt is too contended")


async def _swap(scope: Scope, held: HeldReceipt, after: Receipt) -> bool:
    """Keep the receipt of a lease that has ended for its holder. False when another client has
    changed the receipt meanwhile."""

    def has_ended(stored: Receipt) -> bool:
        is_same_lease = stored.lease_id == after.lease_id
        return is_same_lease and stored.holders.isdisjoint({held.holder})

    def is_ours(stored: Receipt) -> bool:
        is_over = after.state is not ReceiptState.OPEN
        return stored.ended_by == held.ender if is_over else has_ended(stored)

    answer = await swap_surely(scope, ReceiptSwap(held.receipt, after), is_ours)
    if isinstance(answer, Receipt):
        held.receipt = answer
        return True
    adopt_receipt(held, answer.receipt)
    return False


async def refund_held(scope: Scope, held: HeldReceipt) -> None:
    """End the lease for its holder, and give everything back if there is no other."""
    if await return_held(scope, held):
        await refund(scope, Ledger(ledger_entries(held.receipt)))
