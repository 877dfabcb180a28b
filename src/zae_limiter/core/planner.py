"""From a bucket image to the next write. Decisions are values; nothing is sent here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .composite import Bucket, at, full_bucket, take
from .judge import judge
from .limit import LimitSet
from .writes import Create, Drain, Refill, Speculate


@dataclass(frozen=True, slots=True)
class Intent:
    """What a caller wants from one bucket, and how the bucket should be stamped."""

    limits: LimitSet
    takes_milli: Mapping[str, int]
    acquires: int
    ttl_seconds: int | None
    parent_id: str | None
    cascade: bool


@dataclass(frozen=True, slots=True)
class Short:
    """The bucket, brought up to date, cannot cover the intent."""

    bucket: Bucket


def speculate(intent: Intent, operation: str, now_ms: int) -> Speculate:
    """The write that hopes: one call when the balance is there."""
    return Speculate(
        operation,
        now_ms,
        intent.limits.fingerprint,
        intent.takes_milli,
        intent.acquires,
        _fresh_since_ms(intent, now_ms),
    )


def plan_create(intent: Intent, operation: str, now_ms: int) -> Create | Short:
    """For a bucket that does not exist: it starts full."""
    fresh = _stamped(intent, full_bucket(intent.limits, now_ms), now_ms)
    if not judge(fresh, intent.takes_milli).fits:
        return Short(fresh)
    return Create(operation, now_ms, take(fresh, intent.takes_milli, intent.acquires))


def plan(intent: Intent, bucket: Bucket, operation: str, now_ms: int) -> Refill | Drain | Short:
    """For a bucket whose image is known, because a write was refused on it."""
    current = at(bucket, intent.limits, now_ms)
    if not judge(current, intent.takes_milli).fits:
        return Short(current)
    if _drainable(intent, bucket, now_ms):
        return Drain(
            operation,
            now_ms,
            intent.limits.fingerprint,
            intent.takes_milli,
            intent.acquires,
            _fresh_since_ms(intent, now_ms),
        )
    after = take(_stamped(intent, current, now_ms), intent.takes_milli, intent.acquires)
    return Refill(operation, now_ms, bucket, after)


def plan_restamp(intent: Intent, bucket: Bucket, operation: str, now_ms: int) -> Refill:
    """Put the intent's limits in force and take nothing."""
    after = _stamped(intent, at(bucket, intent.limits, now_ms), now_ms)
    return Refill(operation, now_ms, bucket, after)


def _fresh_since_ms(intent: Intent, now_ms: int) -> int:
    return now_ms - intent.limits.stale_after_ms


def _drainable(intent: Intent, bucket: Bucket, now_ms: int) -> bool:
    return (
        bucket.fingerprint == intent.limits.fingerprint
        and bucket.refilled_at_ms >= _fresh_since_ms(intent, now_ms)
        and not bucket.is_expired(now_ms)
        and judge(bucket, intent.takes_milli).fits
    )


def _stamped(intent: Intent, bucket: Bucket, now_ms: int) -> Bucket:
    ttl = intent.ttl_seconds
    return bucket._replace(
        expires_at_s=None if ttl is None else now_ms // 1000 + ttl,
        parent_id=intent.parent_id,
        cascade=intent.cascade,
    )
