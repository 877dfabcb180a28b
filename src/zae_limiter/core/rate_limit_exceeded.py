"""The error that tells which limits refused a request, and how long to wait."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .exceptions import RateLimitError
from .models import LimitStatus


class RateLimitExceeded(RateLimitError):
    """At least one limit could not cover the request; nothing was taken anywhere."""

    def __init__(self, statuses: Sequence[LimitStatus]) -> None:
        self.statuses = list(statuses)
        self.violations = [status for status in self.statuses if status.exceeded]
        self.passed = [status for status in self.statuses if not status.exceeded]
        if not self.violations:
            raise ValueError("RateLimitExceeded needs at least one exceeded status")
        self.primary_violation = max(self.violations, key=lambda s: s.retry_after_seconds)
        self.retry_after_seconds: float = self.primary_violation.retry_after_seconds
        super().__init__(self._message())

    def _message(self) -> str:
        worst = self.primary_violation
        names = ", ".join(dict.fromkeys(status.limit_name for status in self.violations))
        head = f"Rate limit exceeded for {worst.entity_id}/{worst.resource}: [{names}]."
        if self.retryable:
            return f"{head} Retry after {self.retry_after_seconds:.1f}s"
        return (
            f"{head} Requested {worst.requested} {worst.limit_name} is above the capacity"
            f" of {worst.limit.capacity}: it can never succeed"
        )

    @property
    def retryable(self) -> bool:
        """False when the request is larger than the capacity of some limit."""
        return not math.isinf(self.retry_after_seconds)

    @property
    def retry_after_header(self) -> str | None:
        """Whole seconds for an HTTP `Retry-After` header; None when waiting cannot help."""
        return str(int(self.retry_after_seconds) + 1) if self.retryable else None

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready description, for the body of a 429 response."""
        return {
            "error": "rate_limit_exceeded",
            "message": str(self),
            "retryable": self.retryable,
            "retry_after_seconds": _finite(self.retry_after_seconds),
            "retry_after_ms": round(self.retry_after_seconds * 1000) if self.retryable else None,
            "limits": [_status_dict(status) for status in self.statuses],
        }


def _finite(seconds: float) -> float | None:
    return None if math.isinf(seconds) else seconds


def _status_dict(status: LimitStatus) -> dict[str, Any]:
    return {
        "entity_id": status.entity_id,
        "resource": status.resource,
        "limit_name": status.limit_name,
        "capacity": status.limit.capacity,
        "refill_amount": status.limit.refill_amount,
        "refill_period_seconds": status.limit.refill_period_seconds,
        "available": status.available,
        "requested": status.requested,
        "exceeded": status.exceeded,
        "retry_after_seconds": _finite(status.retry_after_seconds),
    }
