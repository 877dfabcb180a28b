"""PyPI `pyrate-limiter`: one bucket for each limit, in memory and in SQLite."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

from pyrate_limiter import (
    AbstractBucket,
    BucketFactory,
    InMemoryBucket,
    InMemoryStateStore,
    Limiter,
    MonotonicClock,
    Rate,
    RateItem,
    SQLiteBucket,
    StateBucket,
)
from pyrate_limiter import TokenBucket as TokenBucketAlgorithm

from ..worker.adapter import Adapter
from ..worker.job import Job, Quota

# With a file lock, a call that does not wait is refused whenever another process is at work.
_LOCK_WAIT_S = 1.0


def _rates(quota: Quota) -> list[Rate]:
    return [Rate(quota.capacity, quota.period_s * 1000)]


class _PyrateLimiter(Adapter):
    def __init__(self, job: Job) -> None:
        limiters = [self.limiter(quota, job) for quota in job.quotas]
        self._limiters = limiters
        self._charges = [(x.try_acquire, n) for x, n in zip(limiters, job.takes, strict=True)]

    @abstractmethod
    def limiter(self, quota: Quota, job: Job) -> Limiter:
        """Made for one limit of every entity."""

    def acquire(self, entity: str) -> bool:
        for try_acquire, amount in self._charges:
            if not try_acquire(entity, amount, blocking=False):
                return False
        return True

    def close(self) -> None:
        for limiter in self._limiters:
            limiter.close()


class _ByName(BucketFactory):  # type: ignore[misc]
    """A bucket for each entity, made when it is first asked for."""

    def __init__(self, quota: Quota) -> None:
        self._clock = MonotonicClock()
        self._quota = quota
        self._buckets: dict[str, AbstractBucket] = {}

    def wrap_item(self, name: str, weight: int = 1) -> RateItem:
        return RateItem(name, self._clock.now(), weight=weight)

    def get(self, item: RateItem) -> AbstractBucket:
        bucket = self._buckets.get(item.name)
        if bucket is None:
            bucket = self._buckets[item.name] = self.bucket(self._quota)
        return bucket

    @abstractmethod
    def bucket(self, quota: Quota) -> AbstractBucket:
        """A new one."""


class _Logs(_ByName):
    def bucket(self, quota: Quota) -> AbstractBucket:
        return self.create(InMemoryBucket, _rates(quota))


class _States(_ByName):
    def bucket(self, quota: Quota) -> AbstractBucket:
        return StateBucket(_rates(quota), TokenBucketAlgorithm(), InMemoryStateStore())


class SlidingLog(_PyrateLimiter):
    """Keeps an entry for every unit taken."""

    def limiter(self, quota: Quota, job: Job) -> Limiter:
        return Limiter(_Logs(quota))


class TokenBucket(_PyrateLimiter):
    """Keeps a number."""

    def limiter(self, quota: Quota, job: Job) -> Limiter:
        return Limiter(_States(quota))


class Sqlite(_PyrateLimiter):
    """A table for each limit, of one entity, for the use of one process."""

    file_lock = False

    def limiter(self, quota: Quota, job: Job) -> Limiter:
        return Limiter(
            SQLiteBucket.init_from_file(
                _rates(quota),
                table=quota.name,
                db_path=str(Path(job.directory) / "limits.db"),
                use_file_lock=self.file_lock,
            )
        )


class LockedSqlite(Sqlite):
    """The same with what several processes need: a lock file, and a write-ahead journal."""

    file_lock = True


class WaitingSqlite(LockedSqlite):
    """The same used by several processes: each call waits for the lock."""

    def acquire(self, entity: str) -> bool:
        for try_acquire, amount in self._charges:
            if not try_acquire(entity, amount, timeout=_LOCK_WAIT_S):
                return False
        return True
