"""PyPI `limits`, in memory."""

from __future__ import annotations

from limits import RateLimitItemPerSecond
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter, RateLimiter

from ..worker.adapter import Adapter
from ..worker.job import Job


class _Limits(Adapter):
    strategy: type[RateLimiter]

    def __init__(self, job: Job) -> None:
        self._storage = MemoryStorage()
        self._hit = self.strategy(self._storage).hit
        items = [RateLimitItemPerSecond(q.capacity, q.period_s, q.name) for q in job.quotas]
        self._charges = list(zip(items, job.takes, strict=True))

    def acquire(self, entity: str) -> bool:
        for item, amount in self._charges:  # noqa: SIM110 - a generator would cost time
            if not self._hit(item, entity, cost=amount):
                return False
        return True

    def close(self) -> None:
        self._storage.reset()


class FixedWindow(_Limits):
    """Counts by window."""

    strategy = FixedWindowRateLimiter


class MovingWindow(_Limits):
    """Keeps an entry for every unit taken."""

    strategy = MovingWindowRateLimiter
