"""Counts of how acquires ended. They are read by whoever asks, and tell nobody by themselves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ...core.rate_limit_exceeded import RateLimitExceeded


@dataclass(slots=True)
class AcquireCounts:
    """The acquires of one namespace in this process.

    `refused` counts each limit that refused, by its name and by whether it was the entity's own
    or an ancestor's. `waited`: admitted after waiting for tokens. `degraded`: let through without
    a charge. `unavailable`: failed because the store could not answer. `lost`: refunds and
    corrections that could not be written. `batched`: callers that shared one of `batches`.
    """

    admitted: int = 0
    waited: int = 0
    degraded: int = 0
    unavailable: int = 0
    refused_acquires: int = 0
    lost: int = 0
    batches: int = 0
    batched: int = 0
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)

    def count_refusal(self, entity_id: str, error: RateLimitExceeded) -> None:
        """Count a refused acquire, and each limit that refused it."""
        self.refused_acquires += 1
        for status in error.violations:
            level = "own" if status.entity_id == entity_id else "ancestor"
            self.refused[status.limit_name, level] += 1

    def count_batch(self, callers: int) -> None:
        """Count a write that several callers share."""
        self.batches += 1
        self.batched += callers
