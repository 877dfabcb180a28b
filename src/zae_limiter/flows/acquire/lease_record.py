"""A lease as this process knows it, and what can be told of it without a call."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum, auto

from ...core.exceptions import (
    LeaseExpiredError,
    RateLimiterUnavailable,
    StorageUnavailable,
    StoreConfigurationError,
    ValidationError,
)
from ...core.lease_token import LeaseToken, encode_token
from ...core.ledger import Ledger
from ...core.limit import MILLI, LimitSet
from ...core.log_fields import log_fields
from ...core.models import LimitStatus, OnUnavailable
from ...core.receipts import HeldReceipt
from ..scope import Scope
from .request import Request

logger = logging.getLogger("zae_limiter")
MAX_TIMEOUT_SECONDS = 86_400 * 366


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
    """Everything a lease knows. `limits` is None when the store was down and let it pass. `held`:
    its receipt, if other processes can find it."""

    scope: Scope
    request: Request
    terms: LeaseTerms
    ledger: Ledger
    limits: LimitSet | None
    held: HeldReceipt | None = None
    state: LeaseState = LeaseState.ACTIVE
    made_id: str = ""

    @property
    def degraded(self) -> bool:
        """True when nothing was charged because the store could not answer."""
        return self.limits is None

    @property
    def is_endable(self) -> bool:
        """True while the lease has not ended here. The repeat of a charge that has been committed
        has nothing to end."""
        can_end = self.held is None or bool(self.held.holder)
        return can_end and self.state is LeaseState.ACTIVE


def lease_id(record: LeaseRecord) -> str:
    """Return the id of the lease. Without a receipt, it is made when it is first asked for."""
    if record.held is not None:
        return record.held.receipt.lease_id
    if not record.made_id:
        record.made_id = record.scope.io.operation_id()
    return record.made_id


def token(record: LeaseRecord) -> str:
    """Return the lease as text, for another process that ends it."""
    held = record.held
    if held is None:
        reason = "is needed for a token: call reserve(..., lease_ttl=seconds)"
        if record.degraded:
            reason = "has no effect: the store could not answer, and nothing was charged"
        raise ValidationError("lease_ttl", None, reason)
    if not record.is_endable:
        raise LeaseExpiredError
    return encode_token(LeaseToken(held.receipt.key, held.holder))


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


def bear(record: LeaseRecord, error: StorageUnavailable) -> None:
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
