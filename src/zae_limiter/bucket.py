"""Token-bucket arithmetic for one limit, in integers.

These functions are for programs that compute with bucket states themselves. Amounts are
millitokens and times are milliseconds. Each function knows one limit at a time; the limiter
itself uses `core.bucket`, which refills all limits of a bucket together and keeps remainders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .core.limit import MILLI, BucketState, Limit
from .core.models import LimitStatus

__all__ = [
    "ConsumeResult",
    "RefillResult",
    "build_limit_status",
    "calculate_available",
    "calculate_retry_after",
    "force_consume",
    "refill_bucket",
    "try_consume",
    "would_refill_satisfy",
]


class RefillResult(NamedTuple):
    """A refill results in a balance, and in the time up to which it has been credited."""

    new_tokens_milli: int
    new_last_refill_ms: int


class ConsumeResult(NamedTuple):
    """A consumption results in success or not, and in a balance."""

    success: bool
    new_tokens_milli: int
    new_last_refill_ms: int
    available: int
    retry_after_seconds: float


def refill_bucket(
    tokens_milli: int,
    last_refill_ms: int,
    now_ms: int,
    capacity_milli: int,
    refill_amount_milli: int,
    refill_period_ms: int,
) -> RefillResult:
    """Credit the time since the last refill, up to the capacity.

    Time advances only by what the credited tokens took to accrue, so that small steps do not lose
    their fractions.
    """
    elapsed_ms = now_ms - last_refill_ms
    if elapsed_ms <= 0:
        return RefillResult(min(tokens_milli, capacity_milli), last_refill_ms)
    added = elapsed_ms * refill_amount_milli // refill_period_ms
    if added == 0:
        return RefillResult(min(tokens_milli, capacity_milli), last_refill_ms)
    used_ms = added * refill_period_ms // refill_amount_milli
    return RefillResult(min(capacity_milli, tokens_milli + added), last_refill_ms + used_ms)


def _refilled(state: BucketState, now_ms: int) -> RefillResult:
    return refill_bucket(
        state.tokens_milli,
        state.last_refill_ms,
        now_ms,
        state.capacity_milli,
        state.refill_amount_milli,
        state.refill_period_ms,
    )


def try_consume(state: BucketState, requested: int, now_ms: int) -> ConsumeResult:
    """Refill, then take `requested` tokens if the balance covers them; take nothing if it does
    not."""
    tokens_milli, last_refill_ms = _refilled(state, now_ms)
    deficit_milli = requested * MILLI - tokens_milli
    success = deficit_milli <= 0
    return ConsumeResult(
        success,
        -deficit_milli if success else tokens_milli,
        last_refill_ms,
        tokens_milli // MILLI,
        calculate_retry_after(deficit_milli, state.refill_amount_milli, state.refill_period_ms),
    )


def force_consume(state: BucketState, amount: int, now_ms: int) -> RefillResult:
    """Refill, then take `amount` tokens even if the balance does not cover them: it may go
    negative."""
    tokens_milli, last_refill_ms = _refilled(state, now_ms)
    return RefillResult(tokens_milli - amount * MILLI, last_refill_ms)


def calculate_retry_after(
    deficit_milli: int, refill_amount_milli: int, refill_period_ms: int
) -> float:
    """Return the seconds until the deficit has been refilled, rounded up by a millisecond."""
    if deficit_milli <= 0:
        return 0.0
    return (deficit_milli * refill_period_ms // refill_amount_milli + 1) / 1000.0


def calculate_available(state: BucketState, now_ms: int) -> int:
    """Return the whole tokens of a bucket now; negative while it is in debt."""
    return _refilled(state, now_ms).new_tokens_milli // MILLI


def build_limit_status(
    entity_id: str, resource: str, limit: Limit, state: BucketState, requested: int, now_ms: int
) -> LimitStatus:
    """Return the status of a limit towards a request."""
    result = try_consume(state, requested, now_ms)
    return LimitStatus(
        entity_id,
        resource,
        limit.name,
        limit,
        available=result.available,
        requested=requested,
        exceeded=not result.success,
        retry_after_seconds=result.retry_after_seconds,
    )


def would_refill_satisfy(
    buckets: Iterable[BucketState], consume: Mapping[str, int], now_ms: int
) -> tuple[bool, list[LimitStatus]]:
    """Return whether a refill now would let the request pass, and the status of each limit it
    uses."""
    statuses = [
        build_limit_status(
            state.entity_id,
            state.resource,
            Limit.from_bucket_state(state),
            state,
            consume[state.limit_name],
            now_ms,
        )
        for state in buckets
        if consume.get(state.limit_name)
    ]
    return not any(status.exceeded for status in statuses), statuses
