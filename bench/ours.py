"""zae-limiter: all limits of an acquire in one call, all or none, refunded if the body fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from zae_limiter import (
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    SyncRateLimiter,
    SyncRepository,
)

from .worker.adapter import FOR_EVER_S, Adapter, Tape
from .worker.job import Job

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


class _Async(Adapter):
    """The asynchronous facade."""

    coalesce = True

    def __init__(self, job: Job) -> None:
        self._tasks = job.tasks
        self._runner = asyncio.Runner()
        self._takes = _takes(job)
        self._limiter = self._runner.run(self._open(job))

    async def _open(self, job: Job) -> RateLimiter:
        repository = await Repository.open(url=self.url(job), coalesce=self.coalesce)
        await repository.set_system_defaults(_limits(job))
        return RateLimiter(repository)

    def url(self, job: Job) -> str:
        """Where the limits are kept."""
        return "memory://"

    def acquire(self, entity: str) -> bool:
        return self._runner.run(self._acquire(entity))

    async def _acquire(self, entity: str) -> bool:
        try:
            async with self._limiter.acquire(entity, _RESOURCE, self._takes):
                return True
        except RateLimitExceeded:
            return False

    def run(self, entities: Iterable[str], seconds: float = FOR_EVER_S) -> Tape:
        return self._runner.run(self._run(entities, seconds))

    async def _run(self, entities: Iterable[str], seconds: float) -> Tape:
        tape, shared = Tape(seconds), iter(entities)
        callers = [self._call_on(shared, tape) for _ in range(self._tasks)]
        return tape.end(sum(await asyncio.gather(*callers)))

    async def _call_on(self, entities: Iterator[str], tape: Tape) -> int:
        acquire, clock, note = self._acquire, time.perf_counter_ns, tape.latencies_ns.append
        admitted, then_ns, deadline_ns = 0, tape.began_ns, tape.deadline_ns
        for entity in entities:
            admitted += await acquire(entity)
            now_ns = clock()
            note(now_ns - then_ns)
            then_ns = now_ns
            if now_ns >= deadline_ns:
                break
        return admitted

    def close(self) -> None:
        self._runner.run(self._limiter.close())
        self._runner.close()


class AsyncMemory(_Async):
    """The asynchronous facade over memory."""


class AsyncSqlite(_Async):
    """The asynchronous facade over a file."""

    def url(self, job: Job) -> str:
        return _file(job)


class AsyncSqliteOneByOne(AsyncSqlite):
    """The same with a write for each acquire, also of those that meet."""

    coalesce = False
