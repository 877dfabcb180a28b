"""zae-limiter in memory and in SQLite: all limits of an acquire in one call, all or none, refunded
if the body fails."""

from __future__ import annotations

from pathlib import Path

from zae_limiter import (
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    SyncRateLimiter,
    SyncRepository,
)

from .worker.adapter import Adapter
from .worker.job import Job
from .worker.several import AsyncAdapter

_RESOURCE = "model"


def _limits(job: Job) -> list[Limit]:
    return [Limit(q.name, q.capacity, q.capacity, q.period_s) for q in job.quotas]


def _takes(job: Job) -> dict[str, int]:
    names = [quota.name for quota in job.quotas]
    return dict(zip(names, job.takes, strict=True))


def _file(job: Job) -> str:
    return f"sqlite:///{Path(job.directory) / 'limits.db'}"


class _Sync(Adapter):
    """The blocking facade."""

    def __init__(self, job: Job) -> None:
        repository = SyncRepository.open(url=self.url(job))
        repository.set_system_defaults(_limits(job))
        self._limiter = SyncRateLimiter(repository)
        self._takes = _takes(job)

    def url(self, job: Job) -> str:
        """Where the limits are kept."""
        return "memory://"

    def acquire(self, entity: str) -> bool:
        try:
            with self._limiter.acquire(entity, _RESOURCE, self._takes):
                return True
        except RateLimitExceeded:
            return False

    def close(self) -> None:
        self._limiter.close()


class SyncMemory(_Sync):
    """The blocking facade over memory."""


class SyncSqlite(_Sync):
    """The blocking facade over a file."""

    def url(self, job: Job) -> str:
        return _file(job)


class _Async(AsyncAdapter):
    """The asynchronous facade."""

    coalesce = True

    async def open(self, job: Job) -> None:
        repository = await Repository.open(url=self.url(job), coalesce=self.coalesce)
        await repository.set_system_defaults(_limits(job))
        self._limiter = RateLimiter(repository)
        self._takes = _takes(job)

    def url(self, job: Job) -> str:
        """Where the limits are kept."""
        return "memory://"

    async def take(self, entity: str) -> bool:
        try:
            async with self._limiter.acquire(entity, _RESOURCE, self._takes):
                return True
        except RateLimitExceeded:
            return False

    async def shut(self) -> None:
        await self._limiter.close()


class AsyncMemory(_Async):
    """The asynchronous facade over memory."""


class AsyncSqlite(_Async):
    """The asynchronous facade over a file."""

    def url(self, job: Job) -> str:
        return _file(job)


class AsyncSqliteOneByOne(AsyncSqlite):
    """The same with a write for each acquire, also of those that meet."""

    coalesce = False
