"""The life of a lease: charged on entry, corrected at the end, refunded on failure."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from enum import Enum, auto

from ...core.exceptions import (
    LeaseExpiredError,
    RateLimiterUnavailable,
    StorageUnavailable,
    StoreConfigurationError,
    ValidationError,
)
from ...core.ledger import Ledger
from ...core.limit import MILLI, LimitSet
from ...core.log_fields import log_fields
from ...core.models import LimitStatus, OnUnavailable
from ...core.rate_limit_exceeded import RateLimitExceeded
from ...core.validation import MAX_AMOUNT, validate_amount, validate_consume
from ...local.fork_safety import new_lock
from ..scope import Scope
from .acquire import charge
from .charge import require_known
from .refusals import AcquireRefused
from .request import Request
from .settle import pay, refund, settle
from .wait import charge_in_time

logger = logging.getLogger("zae_limiter")
MAX_TIMEOUT_SECONDS = 86_400 * 366
# Without this, a charge that lands while its block ends could miss the refund.
_ending = new_lock()


class LeaseState(Enum):
    """A lease is used while active, and ends once, in one of two ways."""

    ACTIVE = auto()
    SETTLED = auto()
    REFUNDED = auto()


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """The conditions of a lease: how long to wait, what to do while the store is down, and whether
    the charge stands if the block fails."""

    timeout: float | None = None
    on_unavailable: OnUnavailable | None = None
    fallback: OnUnavailable | None = None
    keeps_on_error: bool = False


@dataclass(slots=True)
class LeaseRecord:
    """Everything a lease knows. `limits` is None when the store was down and let it pass."""

    scope: Scope
    request: Request
    terms: LeaseTerms
    ledger: Ledger
    limits: LimitSet | None
    state: LeaseState = LeaseState.ACTIVE

    @property
    def degraded(self) -> bool:
        """True when nothing was charged because the store could not answer."""
        return self.limits is None


async def open_lease(scope: Scope, request: Request, terms: LeaseTerms) -> LeaseRecord:
    """Charge every level of the chain and return the lease on it."""
    charged, counts = None, scope.local.counts
    try:
        if terms.timeout is None:
            charged = await scope.io.within(charge(scope, request), scope.settings.patience_s)
        else:
            charged = await charge_in_time(scope, request, terms.timeout)
        record = LeaseRecord(scope, request, terms, charged.ledger, charged.limits)
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
            _bear(record, error)
        except RateLimiterUnavailable:
            counts.unavailable += 1
            raise
        counts.degraded += 1
        return record
    except BaseException:
        # Without this, an interrupt right after the charge would keep it.
        if charged is not None:
            await pay(scope, refund(scope, charged.ledger))
        raise


async def consume(record: LeaseRecord, amounts: Mapping[str, int]) -> None:
    """Charge more, at every level, all or none."""
    scope, wanted = record.scope, _checked(record, amounts)
    if record.limits is None or not any(wanted.values()):
        return
    wanted_milli = {name: amount * MILLI for name, amount in wanted.items()}
    request = record.request._replace(wanted_milli=wanted_milli, field="consume")
    try:
        more = await scope.io.within(charge(scope, request, acquires=0), scope.settings.patience_s)
        if not _absorb(record, more.ledger):
            await pay(scope, refund(scope, more.ledger))
            raise LeaseExpiredError
    except AcquireRefused as refusal:
        raise refusal.to_error() from None
    except StorageUnavailable as error:
        _bear(record, error)


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
    with _ending:
        if record.state is not LeaseState.ACTIVE:
            raise LeaseExpiredError
        if record.limits is not None:
            held = record.ledger.held
            record.ledger.correct({name: amount - held(name) for name, amount in actual.items()})
        record.state = LeaseState.SETTLED
    await _settle(record)


async def give_back(record: LeaseRecord) -> None:
    """End the lease, and give back exactly what was taken."""
    with _ending:
        if record.state is not LeaseState.ACTIVE:
            raise LeaseExpiredError
        record.state = LeaseState.REFUNDED
    await pay(record.scope, refund(record.scope, record.ledger))


def ends_quietly(record: LeaseRecord) -> bool:
    """End a lease whose block succeeded, if there is nothing to write for that."""
    with _ending:
        if record.state is not LeaseState.ACTIVE or record.ledger.pending_milli:
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
    if refunds:
        await pay(record.scope, refund(record.scope, record.ledger))
        return
    # What the body raised says more than a correction that failed after it, and has been logged.
    with suppress(RateLimiterUnavailable) if failed else nullcontext():
        await _settle(record)


async def _settle(record: LeaseRecord) -> None:
    try:
        await pay(record.scope, settle(record.scope, record.ledger))
    except StorageUnavailable as error:
        _bear(record, error)


def remaining(record: LeaseRecord) -> dict[str, int]:
    """The balance of each limit as of the last write that this process saw: the least of all
    levels, in whole tokens. Of a split bucket only the items that were charged count."""
    least: dict[str, int] = {}
    for status in standing(record):
        name, tokens = status.limit_name, status.available
        least[name] = min(least.get(name, tokens), tokens)
    return least


def standing(record: LeaseRecord) -> list[LimitStatus]:
    """The status of each limit of each level as of the last write that this process saw, the
    entity's own first. Of a split bucket only the items that were charged count."""
    found: list[LimitStatus] = []
    for entries in record.ledger.buckets():
        address, limits = entries[0].address, entries[-1].intents[-1].limits
        images = [record.scope.local.images.get(entry.address) for entry in entries]
        for limit in limits.limits:
            name = limit.name
            held = [b.cells[name].tokens_milli for b in images if b is not None and name in b.cells]
            taken_milli = sum(entry.charged_milli.get(name, 0) for entry in entries)
            if held:
                status = LimitStatus(
                    address.entity_id,
                    address.resource,
                    name,
                    limit,
                    available=sum(held) // MILLI,
                    requested=taken_milli // MILLI,
                    exceeded=False,
                    retry_after_seconds=0.0,
                )
                found.append(status)
    return found


def _bear(record: LeaseRecord, error: StorageUnavailable) -> None:
    """The store could not answer: let it pass or say so, as the mode in force has it."""
    if error.is_outage and _mode(record) is OnUnavailable.ALLOW:
        request = record.request
        about = log_fields(
            "degraded", entity_id=request.entity_id, resource=request.resource, error=error
        )
        logger.warning("Store unavailable, allowing unlimited: %s", error, extra=about)
        return
    kind = RateLimiterUnavailable if error.is_outage else StoreConfigurationError
    raise kind(
        str(error),
        error,
        stack_name=record.scope.settings.stack_name,
        entity_id=record.request.entity_id,
        resource=record.request.resource,
    ) from error


def _mode(record: LeaseRecord) -> OnUnavailable:
    """The call's own word, else the system's as last seen, else the limiter's, else block."""
    if record.terms.on_unavailable is not None:
        return record.terms.on_unavailable
    stored = record.scope.local.config_cache.last_on_unavailable
    if stored is not None:
        return OnUnavailable(stored)
    return record.terms.fallback or OnUnavailable.BLOCK


def check_timeout(timeout: float | None) -> float | None:
    """None, or a sensible number of seconds."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise ValidationError("timeout", timeout, "must be a number of seconds or None")
    if not 0 <= timeout <= MAX_TIMEOUT_SECONDS:
        raise ValidationError("timeout", timeout, "must be between 0 and a year of seconds")
    return timeout
