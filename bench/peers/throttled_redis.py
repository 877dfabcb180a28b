"""PyPI `throttled-py` on Redis, by token buckets."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import throttled
import throttled.asyncio

from ..worker.job import Job
from ..worker.several import AsyncAdapter, ThreadedAdapter


def _charges(package: Any, job: Job) -> list[tuple[Any, int]]:
    store = package.RedisStore(server=job.server)
    throttles = [
        package.Throttled(
            using=package.RateLimiterType.TOKEN_BUCKET.value,
            quota=package.per_duration(timedelta(seconds=q.period_s), q.capacity, burst=q.capacity),
            store=store,
            key_prefix=f"{job.place}-{q.name}",
        )
        for q in job.quotas
    ]
    return [(t.limit, amount) for t, amount in zip(throttles, job.takes, strict=True)]


class Async(AsyncAdapter):
    """Awaited."""

    async def open(self, job: Job) -> None:
        self._job, self._charges = job, _charges(throttled.asyncio, job)

    async def take(self, entity: str) -> bool:
        for name in self._job.ancestry(entity):
            for limit, amount in self._charges:
                if (await limit(name, amount)).limited:
                    return False
        return True

    async def shut(self) -> None:
        """Connections end with the process."""


class Threads(ThreadedAdapter):
    """Blocking."""

    def __init__(self, job: Job) -> None:
        self._charges = _charges(throttled, job)

    def acquire(self, entity: str) -> bool:
        for limit, amount in self._charges:  # noqa: SIM110 - a generator would cost time
            if limit(entity, amount).limited:
                return False
        return True

    def close(self) -> None:
        """Connections end with the process."""
