"""A charge and its receipt, kept in one transaction: both are there, or neither is.

Such charges do not travel with those of other callers, and no level is held for another.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.exceptions import LeaseExpiredError, StorageUnavailable
from ...core.ledger import Entry, Ledger
from ...core.receipts import (
    HeldReceipt,
    Receipt,
    ReceiptKey,
    ReceiptSwap,
    StaleReceipt,
    charged,
    ledger_entries,
)
from ...core.writes import Absent, Granted
from ..acquire.acquire import Charged
from ..acquire.charge import Charge, Progress
from ..acquire.failed_writes import log_failed_write
from ..acquire.looks import Looks
from ..acquire.refusals import AcquireRefused, foresee, keep
from ..acquire.request import Request, plan_charges
from ..acquire.send import step_back
from ..acquire.settle import pay
from ..config.registration import confirm_registration
from ..scope import Scope
from .end import adopt_receipt, refund_held, require_held
from .joint_plan import plan_joint
from .repeat import join_if_charged, key_receipt, new_holder
from .swap import swap_charging, whether_landed

# Each lost race means that another client won it; a bound keeps it finite.
_MAX_ATTEMPTS = 48
_IN_DOUBT = "Charge of unknown outcome, the tokens may stay charged"


async def charge_with_receipt(scope: Scope, request: Request, charges: Sequence[Charge]) -> Charged:
    """Charge every level or none, and keep a receipt of it; or find that the key of the request has
    been charged for. Raises `AcquireRefused`."""
    attempts = _Attempts(scope, charges)
    hopeless = foresee(scope, attempts.levels)
    if hopeless:
        raise AcquireRefused(hopeless)
    corrections, looks = scope.local.refusals.corrections, Looks(scope)
    while True:
        try:
            return await _charge_or_take_back(scope, request, attempts)
        except AcquireRefused as refused:
            if not await looks.again(refused.short_items):
                keep(scope, refused, corrections)
                raise
        attempts = _Attempts(scope, charges, afresh=True)


async def _charge_or_take_back(scope: Scope, request: Request, attempts: _Attempts) -> Charged:
    try:
        return await _charge(scope, request, attempts)
    except Exception:
        raise
    except BaseException:
        # Without this, an interrupt right after the charge would keep it.
        if attempts.sent is not None:
            await pay(scope, _take_back(scope, attempts.sent))
        raise


async def _charge(scope: Scope, request: Request, attempts: _Attempts) -> Charged:
    new, seen = _new_receipt(scope, request), None
    for _ in range(_MAX_ATTEMPTS):
        answer = await attempts.charge(seen, new)
        if isinstance(answer, Receipt):
            limits = attempts.levels[0].charge.limits
            held = HeldReceipt(answer, new.lease_id, scope.io.operation_id())
            return Charged(Ledger(ledger_entries(answer)), limits, held)
        if isinstance(answer, StaleReceipt):
            found = await join_if_charged(scope, request, answer.receipt)
            if isinstance(found, Charged):
                return found
            seen = found.receipt
    raise StorageUnavailable(f"{request.entity_id} is too contended")


def _new_receipt(scope: Scope, request: Request) -> Receipt:
    """Return the receipt of a charge that has not been made yet."""
    terms, now_ms, lease_id = request.receipt, scope.io.now_ms(), new_holder(scope)
    assert terms is not None
    key = ReceiptKey(scope.namespace_id, f"LEASE#{lease_id}")
    if terms.idempotency_key is not None:
        key = key_receipt(scope, terms.idempotency_key)
    return Receipt(
        key,
        "",
        lease_id,
        request.entity_id,
        request.resource,
        request.wanted_milli,
        (),
        (),
        now_ms + terms.expires_after_ms,
        now_ms + terms.ends_after_ms,
        frozenset({lease_id}),
        has_own_limits=request.override is not None,
    )


async def consume_held(scope: Scope, request: Request, held: HeldReceipt) -> None:
    """Charge more on a receipt, at every level, all or none. Raises `AcquireRefused`, or
    `LeaseExpiredError` where the lease has been ended elsewhere."""
    if held.is_moot:
        return None
    charges, looks = await plan_charges(scope, request, acquires=0), Looks(scope)
    attempts = _Attempts(scope, charges)
    while True:
        try:
            return await _consume(scope, held, attempts)
        except AcquireRefused as refused:
            if not await looks.again(refused.short_items):
                raise
        attempts = _Attempts(scope, charges, afresh=True)


async def _consume(scope: Scope, held: HeldReceipt, attempts: _Attempts) -> None:
    for lost in range(1, _MAX_ATTEMPTS):
        require_held(held, scope.io.now_ms())
        answer = await attempts.charge(held.receipt, held.receipt)
        if isinstance(answer, Receipt):
            held.receipt = answer
            return
        if isinstance(answer, StaleReceipt):
            adopt_receipt(held, answer.receipt)
            await step_back(scope, lost)
    raise StorageUnavailable(f"{held.receipt.entity_id} is too contended")


class _Attempts:
    """The attempts to charge all levels together. `sent`: the swap that was sent last."""

    def __init__(self, scope: Scope, charges: Sequence[Charge], *, afresh: bool = False) -> None:
        now_ms = scope.io.now_ms()
        self.levels = [Progress(charge, charge.home, now_ms) for charge in charges]
        self.sent: ReceiptSwap | None = None
        self._scope = scope
        self._lost = 0
        self._afresh = afresh

    async def charge(self, seen: Receipt | None, base: Receipt) -> Receipt | StaleReceipt | None:
        """Charge all levels and keep `base` with these charges, if the stored receipt is as it was
        seen. Returns the receipt that was kept; None when another client was faster."""
        scope = self._scope
        plan = await plan_joint(scope, self.levels, afresh=self._afresh)
        after = charged(base, plan.entries, scope.io.operation_id())
        self.sent = ReceiptSwap(seen, after)
        try:
            answer = await swap_charging(scope, self.sent, plan.writes)
        except StorageUnavailable as error:
            if error.ambiguous or not error.retryable:
                _log_doubt(plan.entries, error)
                raise
            # Other clients wrote to one of the items at the very same time. An outage shows when
            # the items are read.
            self._afresh, answer = True, []
        if isinstance(answer, StaleReceipt):
            return answer
        if answer and all(isinstance(outcome, Granted) for outcome in answer):
            for level in self.levels:
                scope.local.refusals.forget(level.charge.home)
                scope.local.doubted.discard(level.charge.home)
            return after
        if any(isinstance(outcome, Absent) for outcome in answer):
            # An item that goes before its time may have been purged with its namespace.
            await confirm_registration(scope, is_cached=False)
        self._lost += 1
        await step_back(scope, self._lost)
        return None


def _log_doubt(entries: Sequence[Entry], error: StorageUnavailable) -> None:
    if error.ambiguous:
        for entry in entries:
            log_failed_write(_IN_DOUBT, entry.charged_milli, entry.address, error)


async def _take_back(scope: Scope, swap: ReceiptSwap) -> None:
    """Undo a charge whose caller was interrupted. If that fails, the tokens stay charged, which is
    logged."""
    unknown = StorageUnavailable("The charge was interrupted", ambiguous=True)
    receipt = swap.after
    try:
        found = await whether_landed(scope, swap, unknown)
        if isinstance(found, Receipt):
            held = HeldReceipt(found, receipt.lease_id, scope.io.operation_id())
            await refund_held(scope, held)
    except (StorageUnavailable, LeaseExpiredError):
        _log_doubt(ledger_entries(receipt), unknown)
