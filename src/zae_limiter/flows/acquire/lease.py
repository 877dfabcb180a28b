"""The life of a lease: charged on entry, corrected at the end, refunded on failure."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext, suppress

from ...core.exceptions import (
    LeaseExpiredError,
    RateLimiterUnavailable,
    StorageUnavailable,
    ValidationError,
)
from ...core.lease_token import decode_token
from ...core.ledger import Ledger
from ...core.limit import MILLI, LimitSet
from ...core.rate_limit_exceeded import RateLimitExceeded
from ...core.receipts import HeldReceipt, ledger_entries
from ...core.validation import MAX_AMOUNT, validate_amount, validate_consume
from ...local.fork_safety import new_lock
from ..receipts.charge import charge_with_receipt, consume_held
from ..receipts.end import refund_held, return_held, settle_held, take_up
from ..receipts.repeat import find_repeat
from ..scope import Scope
from .acquire import Charged, charge
from .charge import require_known
from .failed_writes import log_failed_write
from .lease_record import LeaseRecord, LeaseState, LeaseTerms, bear
from .refusals import AcquireRefused
from .request import Request, plan_charges
from .settle import pay, refund, settle
from .wait import charge_in_time

# Without this, a charge that lands while its block ends could miss the refund.
_ending = new_lock()
_NOT_ENDED = "The end of a lease failed, the tokens stay charged"


async def open_lease(scope: Scope, request: Request, terms: LeaseTerms) -> LeaseRecord:
    """Charge every level of the chain and return the lease on it."""
    charged, counts = None, scope.local.counts
    try:
        if request.receipt is not None:
            charged = await _charge_once(scope, request, terms)
        elif terms.timeout is None:
            charged = await scope.io.within(charge(scope, request), scope.settings.patience_s)
        else:
            charged = await charge_in_time(scope, request, terms.timeout)
        record = LeaseRecord(scope, request, terms, charged.ledger, charged.limits, charged.held)
        counts.admitted += 1
        return record
    except AcquireRefused as refusal:
        error = refusal.to_error()
        counts.count_refusal(request.entity_id, error)
        raise error from None
    except RateLimitExceeded as error:
        counts.count_refusal(request.entity_id, error)
        raise
    except StorageUnavailable as error:
        record = LeaseRecord(scope, request, terms, Ledger(), None)
        try:
            bear(record, error)
        except RateLimiterUnavailable:
            counts.unavailable += 1
            raise
        counts.degraded += 1
        return record
    except BaseException:
        # Without this, an interrupt right after the charge would keep it.
        if charged is not None:
            await pay(scope, _undo(scope, charged))
        raise


async def _charge_once(scope: Scope, request: Request, terms: LeaseTerms) -> Charged:
    """Charge with a receipt, unless the key has been charged for. A repeat is served however short
    the buckets are, and does not wait for tokens."""
    patience_s = scope.settings.patience_s
    try:
        if terms.timeout is None:
            return await scope.io.within(_charge_kept(scope, request), patience_s)
        return await charge_in_time(scope, request, terms.timeout)
    except (AcquireRefused, RateLimitExceeded):
        # Had another process charged the same key meanwhile, that would be why it is short.
        repeat = await scope.io.within(find_repeat(scope, request), patience_s)
        if repeat is None:
            raise
        return repeat


async def _charge_kept(scope: Scope, request: Request) -> Charged:
    return await charge_with_receipt(scope, request, await plan_charges(scope, request))


async def _undo(scope: Scope, charged: Charged) -> None:
    if charged.held is None:
        await refund(scope, charged.ledger)
        return
    with suppress(LeaseExpiredError):
        await refund_held(scope, charged.held)


async def resume_lease(
    scope: Scope, token: str, terms: LeaseTerms, default: LimitSet | None
) -> LeaseRecord:
    """Find the lease of a token. Raises `LeaseExpiredError` if it can no longer be ended."""
    key, holder = decode_token(token)
    if key.namespace_id != scope.namespace_id:
        raise ValidationError("token", "", "is for a lease of another namespace")
    receipt = await scope.in_time(scope.store.receipts.read(key))
    held = take_up(receipt, holder, scope.io.operation_id(), scope.io.now_ms())
    receipt = held.receipt
    request = Request(
        receipt.entity_id, receipt.resource, receipt.wanted_milli, receipt.own_limits, default
    )
    ledger = Ledger(ledger_entries(receipt))
    return LeaseRecord(scope, request, terms, ledger, receipt.limits, held)


async def consume(record: LeaseRecord, amounts: Mapping[str, int]) -> None:
    """Charge more, at every level, all or none."""
    scope, wanted = record.scope, _checked(record, amounts)
    if record.limits is None or not any(wanted.values()):
        return
    wanted_milli = {name: amount * MILLI for name, amount in wanted.items()}
    request = record.request._replace(wanted_milli=wanted_milli, field="consume")
    try:
        if record.held is not None:
            await _consume_held(record, request, record.held)
            return
        more = await scope.io.within(charge(scope, request, acquires=0), scope.settings.patience_s)
        if not _absorb(record, more.ledger):
            await pay(scope, refund(scope, more.ledger))
            raise LeaseExpiredError
    except AcquireRefused as refusal:
        raise refusal.to_error() from None
    except StorageUnavailable as error:
        bear(record, error)


async def _consume_held(record: LeaseRecord, request: Request, held: HeldReceipt) -> None:
    scope = record.scope
    try:
        await scope.io.within(consume_held(scope, request, held), scope.settings.patience_s)
    except LeaseExpiredError:
        record.state = LeaseState.SETTLED
        raise
    record.ledger.entries = ledger_entries(held.receipt)


def _absorb(record: LeaseRecord, more: Ledger) -> bool:
    """Add a further charge to the lease. False when the block has ended meanwhile: its refund
    has been computed, and nobody else would give this charge back."""
    with _ending:
        if record.state is LeaseState.ACTIVE:
            record.ledger.absorb(more)
            return True
    return False


def adjust(record: LeaseRecord, amounts: Mapping[str, int], sign: int = 1) -> None:
    """Correct what was charged; written when the lease ends. May drive buckets negative."""
    verb = "adjust" if sign > 0 else "release"
    deltas = {name: sign * delta for name, delta in _checked(record, amounts, verb).items()}
    if record.limits is None:
        return
    with _ending:
        # Between the checks above and here, another thread may have ended the lease.
        if record.state is not LeaseState.ACTIVE:
            raise LeaseExpiredError
        for name, delta in deltas.items():
            held = record.ledger.held(name)
            if held + delta < 0:
                reason = f"gives back more than the lease holds ({held})"
                raise ValidationError(f"{verb}[{name!r}]", amounts[name], reason)
        record.ledger.correct(deltas)


def _checked(
    record: LeaseRecord, amounts: Mapping[str, int], verb: str = "consume"
) -> Mapping[str, int]:
    if record.state is not LeaseState.ACTIVE:
        raise LeaseExpiredError
    if verb == "consume":
        validate_consume(amounts)
    for name, amount in amounts.items():
        # The common case is decided here, so that a message is only made for the others.
        if type(amount) is not int or abs(amount) > MAX_AMOUNT:
            validate_amount(f"{verb}[{name!r}]", amount, signed=True)
    if record.limits is not None:
        require_known(amounts, record.limits, verb)
    return amounts


async def commit(record: LeaseRecord, actual: Mapping[str, int]) -> None:
    """Set the true totals of the limits that are named, at every level, and end the lease: from
    now on the charge stands."""
    _checked(record, actual, "commit")
    for name, amount in actual.items():
        if amount < 0:
            raise ValidationError(f"commit[{name!r}]", amount, "must not be negative")
    _end(record, LeaseState.SETTLED)
    if record.held is None or await _wins(record, record.held):
        if record.limits is not None:
            record.ledger.set_totals(actual)
        await _settle(record)


def _end(record: LeaseRecord, state: LeaseState) -> None:
    """End an active lease in this process: from now on its ledger does not change any more."""
    with _ending:
        if record.state is not LeaseState.ACTIVE:
            raise LeaseExpiredError
        record.state = state


async def _wins(record: LeaseRecord, held: HeldReceipt) -> bool:
    """End the receipt as the record has ended. True when this lease alone is to correct the charge.
    A lease whose receipt could not be reached stays active, so that its end can be tried again."""
    end = settle_held if record.state is LeaseState.SETTLED else return_held
    try:
        wins = await pay(record.scope, end(record.scope, held))
    except StorageUnavailable as error:
        ended, record.state = record.state, LeaseState.ACTIVE
        bear(record, error)
        record.state = ended
        return False
    record.ledger.entries = ledger_entries(held.receipt)
    return wins


async def give_back(record: LeaseRecord) -> None:
    """End the lease, and give back exactly what was taken."""
    _end(record, LeaseState.REFUNDED)
    if record.held is None or await _wins(record, record.held):
        await pay(record.scope, refund(record.scope, record.ledger))


def ends_quietly(record: LeaseRecord) -> bool:
    """End a lease whose block succeeded, if there is nothing to write for that."""
    with _ending:
        if record.state is not LeaseState.ACTIVE or record.ledger.pending_milli or record.held:
            return False
        record.state = LeaseState.SETTLED
        return True


async def end_lease(record: LeaseRecord, *, failed: bool) -> None:
    """Write the corrections or, if the body failed and the charge is not to be kept, give back
    exactly what was taken. A lease that has ended before the block stays as it is."""
    refunds = failed and not record.terms.keeps_on_error
    with _ending:
        if record.state is not LeaseState.ACTIVE:
            return
        record.state = LeaseState.REFUNDED if refunds else LeaseState.SETTLED
    if record.held is not None:
        await _end_held(record, record.held, failed)
    elif refunds:
        await pay(record.scope, refund(record.scope, record.ledger))
    else:
        # What the body raised says more than a correction that failed after it, which is logged.
        with suppress(RateLimiterUnavailable) if failed else nullcontext():
            await _settle(record)


async def _end_held(record: LeaseRecord, held: HeldReceipt, failed: bool) -> None:
    """End a lease with a receipt as its block ends. An end that came to nothing is raised only
    where it leaves corrections unwritten, and the body raised nothing."""
    try:
        if not await _wins(record, held):
            return
        if record.state is LeaseState.REFUNDED:
            await pay(record.scope, refund(record.scope, record.ledger))
        else:
            await _settle(record)
    except LeaseExpiredError:
        if record.ledger.pending_milli and not failed:
            raise
    except RateLimiterUnavailable as error:
        if not failed:
            raise
        for entry in record.ledger.entries:
            log_failed_write(_NOT_ENDED, entry.charged_milli, entry.address, error)


async def _settle(record: LeaseRecord) -> None:
    try:
        await pay(record.scope, settle(record.scope, record.ledger))
    except StorageUnavailable as error:
        bear(record, error)
