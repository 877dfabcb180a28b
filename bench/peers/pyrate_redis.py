"""PyPI `pyrate-limiter` on Redis, by token buckets: one for each limit of each entity."""

from __future__ import annotations

from typing import Any

import redis  # type: ignore[import-not-found]
import redis.asyncio  # type: ignore[import-not-found]
from pyrate_limiter import (
    AbstractBucket,
    BucketFactory,
    Limiter,
    Rate,
    RateItem,
    RedisStateStore,
    StateBucket,
    TokenBucket,
    WallClock,
)

from ..worker.job import Job, Quota
from ..worker.several import AsyncAdapter, ThreadedAdapter

# A call that does not wait is refused whenever another thread is at work.
_WAIT_S = 10.0


class _ByName(BucketFactory):  # type: ignore[misc]
    """A bucket for each entity, made when it is first asked for."""

    def __init__(self, quota: Quota, client: Any, prefix: str) -> None:
        self._clock = WallClock()
        self._rates = [Rate(quota.capacity, quota.period_s * 1000)]
        self._client = client
        self._prefix = f"{prefix}-{quota.name}"
        self._buckets: dict[str, AbstractBucket] = {}

    def wrap_item(self, name: str, weight: int = 1) -> RateItem:
        return RateItem(name, self._clock.now(), weight=weight)

    def get(self, item: RateItem) -> AbstractBucket:
        bucket = self._buckets.get(item.name)
        if bucket is None:
            store = RedisStateStore(self._client, f"{self._prefix}-{item.name}")
            bucket = self._buckets[item.name] = StateBucket(self._rates, TokenBucket(), store)
        return bucket


def _limiters(job: Job, client: Any) -> list[Limiter]:
    return [Limiter(_ByName(quota, client, job.place)) for quota in job.quotas]


class Async(AsyncAdapter):
    """Awaited."""

    async def open(self, job: Job) -> None:
        self._job = job
        self._client = redis.asyncio.Redis.from_url(job.server)
        self._limiters = _limiters(job, self._client)
        charges = zip(self._limiters, job.takes, strict=True)
        self._charges = [(limiter.try_acquire_async, amount) for limiter, amount in charges]

    async def take(self, entity: str) -> bool:
        for name in self._job.ancestry(entity):
            for try_acquire, amount in self._charges:
                if not await try_acquire(name, amount, blocking=False):
                    return False
        return True

    async def shut(self) -> None:
        for limiter in self._limiters:
            limiter.close()
        await self._client.aclose()


class Threads(ThreadedAdapter):
    """Blocking."""

    def __init__(self, job: Job) -> None:
        self._client = redis.Redis.from_url(job.server)
        self._limiters = _limiters(job, self._client)
        charges = zip(self._limiters, job.takes, strict=True)
        self._charges = [(limiter.try_acquire, amount) for limiter, amount in charges]

    def acquire(self, entity: str) -> bool:
        for try_acquire, amount in self._charges:
            if not try_acquire(entity, amount, timeout=_WAIT_S):
                return False
        return True

    def close(self) -> None:
        for limiter in self._limiters:
            limiter.close()
        self._client.close()
