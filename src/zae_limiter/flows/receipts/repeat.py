"""Repeats: calls whose idempotency key has been charged for already."""

from __future__ import annotations

from functools import partial

from ...core.exceptions import IdempotencyKeyError, StorageUnavailable
from ...core.ledger import Ledger
from ...core.receipts import (
    HeldReceipt,
    Receipt,
    ReceiptKey,
    ReceiptSwap,
    StaleReceipt,
    joined,
    ledger_entries,
    next_holder,
)
from ..acquire.acquire import Charged
from ..acquire.request import Request
from ..scope import Scope
from .swap import swap_surely

# Each further attempt means that another client has changed the receipt meanwhile.
_MAX_ATTEMPTS = 48


def key_receipt(scope: Scope, idempotency_key: str) -> ReceiptKey:
    """Return the key of the receipt that is kept for an idempotency key."""
    return ReceiptKey(scope.namespace_id, f"KEY#{idempotency_key}")


def new_holder(scope: Scope) -> str:
    """Return the name of a lease or of a holder, which nobody can guess: whoever knows it can end
    the lease."""
    return f"{scope.io.operation_id()}{scope.io.entropy():020x}"


async def find_repeat(scope: Scope, request: Request) -> Charged | None:
    """Read whether the key of a request has been charged for; None when it has no key, or not."""
    terms = request.receipt
    if terms is None or terms.idempotency_key is None:
        return None
    stored = await scope.store.receipts.read(key_receipt(scope, terms.idempotency_key))
    found = await join_if_charged(scope, request, stored)
    return found if isinstance(found, Charged) else None


async def join_if_charged(
    scope: Scope, request: Request, stored: Receipt | None
) -> Charged | StaleReceipt:
    """Become a holder of a charge that is in force; otherwise return the receipt that says it is
    not. Raises `IdempotencyKeyError` where the charge was for another request."""
    for _ in range(_MAX_ATTEMPTS):
        now_ms = scope.io.now_ms()
        if stored is None or not stored.is_in_force(now_ms):
            return StaleReceipt(stored)
        _check(request, stored)
        if not stored.is_endable(now_ms):
            return _repeat(scope, stored, "")
        holder = next_holder(stored, new_holder(scope))
        joining = joined(stored, holder, scope.io.operation_id())
        if joining.holders == stored.holders:
            return _repeat(scope, stored, holder)
        answer = await swap_surely(scope, ReceiptSwap(stored, joining), partial(_is_held, holder))
        if isinstance(answer, Receipt):
            return _repeat(scope, answer, holder)
        stored = answer.receipt
    raise StorageUnavailable(f"the receipt of {request.entity_id} is too contended")


def _is_held(holder: str, stored: Receipt) -> bool:
    return holder in stored.holders


def _check(request: Request, stored: Receipt) -> None:
    field = stored.difference(request.entity_id, request.resource, request.wanted_milli)
    if field is not None:
        assert request.receipt is not None
        raise IdempotencyKeyError(request.receipt.idempotency_key or "", field)


def _repeat(scope: Scope, receipt: Receipt, holder: str) -> Charged:
    held = HeldReceipt(receipt, holder, scope.io.operation_id(), is_repeat=True)
    return Charged(Ledger(ledger_entries(receipt)), receipt.limits, held)
