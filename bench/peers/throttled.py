"""PyPI `throttled-py`, in memory, by token buckets."""

from __future__ import annotations

from datetime import timedelta

from throttled import MemoryStore, RateLimiterType, Throttled, per_duration

from ..worker.adapter import Adapter
from ..worker.job import Job


class TokenBucket(Adapter):
    """One throttle for each limit, all over one store that is large enough."""

    def __init__(self, job: Job) -> None:
        store = MemoryStore(options={"MAX_SIZE": 2 * len(job.quotas) * (job.entities + 1)})
        throttles = [
            Throttled(
                using=RateLimiterType.TOKEN_BUCKET.value,
                quota=per_duration(timedelta(seconds=q.period_s), q.capacity, burst=q.capacity),
                store=store,
                key_prefix=q.name,
            )
            for q in job.quotas
        ]
        self._charges = [(t.limit, amount) for t, amount in zip(throttles, job.takes, strict=True)]

    def acquire(self, entity: str) -> bool:
        for limit, amount in self._charges:  # noqa: SIM110 - a generator would cost time
            if limit(entity, amount).limited:
                return False
        return True

    def close(self) -> None:
        """Nothing is held."""
