"""PyPI `limits` on Redis, by fixed windows: its cheapest strategy."""

from __future__ import annotations

from limits import RateLimitItemPerSecond
from limits.aio.storage import RedisStorage as AsyncRedisStorage
from limits.aio.strategies import FixedWindowRateLimiter as AsyncFixedWindow
from limits.storage import RedisStorage
from limits.strategies import FixedWindowRateLimiter

from ..worker.job import Job
from ..worker.several import AsyncAdapter, ThreadedAdapter


def _charges(job: Job) -> list[tuple[RateLimitItemPerSecond, int]]:
    items = [RateLimitItemPerSecond(q.capacity, q.period_s, q.name) for q in job.quotas]
    return list(zip(items, job.takes, strict=True))


class Async(AsyncAdapter):
    """Awaited."""

    async def open(self, job: Job) -> None:
        self._job, self._charges = job, _charges(job)
        storage = AsyncRedisStorage(
            f"async+{job.server}", implementation="redispy", key_prefix=job.place
        )
        self._hit = AsyncFixedWindow(storage).hit

    async def take(self, entity: str) -> bool:
        for name in self._job.ancestry(entity):
            for item, amount in self._charges:
                if not await self._hit(item, name, cost=amount):
                    return False
        return True

    async def shut(self) -> None:
        """Connections end with the process."""


class Threads(ThreadedAdapter):
    """Blocking."""

    def __init__(self, job: Job) -> None:
        self._charges = _charges(job)
        storage = RedisStorage(job.server, key_prefix=job.place)
        self._hit = FixedWindowRateLimiter(storage).hit

    def acquire(self, entity: str) -> bool:
        for item, amount in self._charges:  # noqa: SIM110 - a generator would cost time
            if not self._hit(item, entity, cost=amount):
                return False
        return True

    def close(self) -> None:
        """Connections end with the process."""
