"""The life of a lease: charged on entry, corrected at the end, refunded on failure."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from ...core.exceptions import (
    LeaseExpiredError,
    RateLimiterUnavailable,
    StorageUnavailable,
    ValidationError,
)
from ...core.ledger import Ledger
from ...core.limit import LimitSet
from ...core.models import OnUnavailable
from ...core.validation import MAX_AMOUNT, validate_amount, validate_consume
from ..scope import Scope
from .acquire import Refusal, take_all
from .charge import require_known
from .request import Request, charges, make_request
from .settle import refund, settle
from .wait import take_in_time

logger = logging.getLogger("zae_limiter")
MAX_TIMEOUT_SECONDS = 86_400 * 366


class LeaseState(Enum):
    """A lease is used while active, and ends once, in one of two ways."""

    ACTIVE = auto()
    SETTLED = auto()
    REFUNDED = auto()


@dataclass(frozen=True, slots=True)
class Terms:
    """How a lease is to be had."""

    timeout: float | None = None
    on_unavailable: OnUnavailable | None = None
    fallback: OnUnavailable | None = None
    speculative: bool = True


@dataclass(slots=True)
class LeaseRecord:
    """Everything a lease knows. `limits` is None when the store was down and let it pass."""

    scope: Scope
    request: Request
    terms: Terms
    ledger: Ledger
    limits: LimitSet | None
    state: LeaseState = LeaseState.ACTIVE

    @property
    def degraded(self) -> bool:
        """True when nothing was charged because the store could not answer."""
        return self.limits is None


async def open_lease(scope: Scope, request: Request, terms: Terms) -> LeaseRecord:
    """Charge every level of the chain and return the lease on it."""
    speculative = terms.speculative
    try:
        if terms.timeout is None:
            planned = await charges(scope, request)
            ledger = await take_all(scope, planned, speculative=speculative)
        else:
            planned, ledger = await take_in_time(
                scope, request, terms.timeout, speculative=speculative
            )
    except Refusal as refusal:
        raise refusal.to_error() from None
    except StorageUnavailable as error:
        record = LeaseRecord(scope, request, terms, Ledger(), None)
        _bear(record, error)
        return record
    return LeaseRecord(scope, request, terms, ledger, planned[0].limits)


async def consume(record: LeaseRecord, amounts: Mapping[str, int]) -> None:
    """Charge more, at every level, all or none."""
    wanted = _checked(record, amounts)
    if record.limits is None or not any(wanted.values()):
        return
    scope, before = record.scope, record.request
    further = make_request(before.entity_id, before.resource, wanted, default=before.default)
    request = Request(
        before.entity_id, before.resource, further.wanted_milli, before.override, before.default
    )
    try:
        planned = await charges(scope, request, acquires=0)
        more = await take_all(scope, planned, speculative=record.terms.speculative)
        record.ledger.absorb(more)
    except Refusal as refusal:
        raise refusal.to_error() from None
    except StorageUnavailable as error:
        _bear(record, error)


def adjust(record: LeaseRecord, amounts: Mapping[str, int], sign: int = 1) -> None:
    """Correct what was charged; written when the lease ends. May drive buckets negative."""
    deltas = _checked(record, amounts, "adjust" if sign > 0 else "release")
    if record.limits is not None:
        record.ledger.correct({name: sign * delta for name, delta in deltas.items()})


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


def ends_quietly(record: LeaseRecord) -> bool:
    """End a lease whose block succeeded, if there is nothing to write for that."""
    if record.state is not LeaseState.ACTIVE or record.ledger.pending_milli:
        return False
    record.state = LeaseState.SETTLED
    return True


async def end_lease(record: LeaseRecord, *, failed: bool) -> None:
    """Write the corrections or, if the body failed, give back exactly what was taken."""
    if record.state is not LeaseState.ACTIVE:
        return
    if failed:
        record.state = LeaseState.REFUNDED
        await refund(record.scope, record.ledger)
        return
    record.state = LeaseState.SETTLED
    try:
        await settle(record.scope, record.ledger)
    except StorageUnavailable as error:
        _bear(record, error)


def _bear(record: LeaseRecord, error: StorageUnavailable) -> None:
    """The store could not answer: let it pass or say so, as the mode in force has it."""
    if _mode(record) is OnUnavailable.ALLOW:
        logger.warning("Store unavailable, allowing unlimited: %s", error)
        return
    raise RateLimiterUnavailable(
        str(error),
        error,
        stack_name=record.scope.stack_name,
        entity_id=record.request.entity_id,
        resource=record.request.resource,
    ) from error


def _mode(record: LeaseRecord) -> OnUnavailable:
    """The call's own word, else the system's as last seen, else the limiter's, else block."""
    if record.terms.on_unavailable is not None:
        return record.terms.on_unavailable
    stored = record.scope.cache.last_on_unavailable
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
