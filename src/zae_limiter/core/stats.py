"""Statistics of a limiter in one process, as counts since it was opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .models import CacheStats


@dataclass(frozen=True, slots=True)
class StoreTraffic:
    """The traffic between a client and its store, by operation.

    `failed_conditions` are bound to happen: a bucket was short, or another client was faster.
    `seconds` are those that all requests took together.
    """

    calls: Mapping[str, int] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    failed_conditions: Mapping[str, int] = field(default_factory=dict)
    units: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LimiterStats:
    """How the acquires of one namespace ended in this process, and what they needed.

    `refused_by_limit` counts each limit that refused, by its name and its level: `own` for the
    entity's, `ancestor` for one above it. `waited` were admitted after waiting for tokens,
    `degraded` let through without a charge while the store was down, `unavailable` failed then.
    `lost` are refunds and corrections that could not be written. `batched` callers shared `batches`
    writes.
    """

    admitted: int
    refused: int
    waited: int
    degraded: int
    unavailable: int
    refused_by_limit: Mapping[tuple[str, str], int]
    cache: CacheStats
    traffic: StoreTraffic
    lost: int = 0
    batches: int = 0
    batched: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers, JSON-ready."""
        return {
            "admitted": self.admitted,
            "refused": self.refused,
            "waited": self.waited,
            "degraded": self.degraded,
            "unavailable": self.unavailable,
            "lost": self.lost,
            "batches": self.batches,
            "batched": self.batched,
            "refused_by_limit": [
                {"limit_name": name, "level": level, "count": count}
                for (name, level), count in sorted(self.refused_by_limit.items())
            ],
            "cache": self.cache.as_dict(),
            "calls": dict(self.traffic.calls),
            "requests": dict(self.traffic.requests),
            "failed_conditions": dict(self.traffic.failed_conditions),
            "units": dict(self.traffic.units),
            "seconds": dict(self.traffic.seconds),
        }
