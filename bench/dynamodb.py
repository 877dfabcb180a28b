"""zae-limiter on DynamoDB: this one, and 0.17.0 where that is what is installed. Both are called
in the same way, but 0.17.0 is asked to make its table first."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import zae_limiter

from .worker.job import Job
from .worker.several import AsyncAdapter, ThreadedAdapter

RESOURCE = "model"
REGION = "us-east-1"
# What a call turned out to cost beyond what was taken for it.
_MORE = {"tokens": 50}

package: Any = zae_limiter


def limits(job: Job) -> list[Any]:
    """The job's quotas."""
    return [package.Limit(q.name, q.capacity, q.capacity, q.period_s) for q in job.quotas]


def takes(job: Job) -> dict[str, int]:
    """What an acquire consumes."""
    names = [quota.name for quota in job.quotas]
    return dict(zip(names, job.takes, strict=True))


def table(job: Job) -> dict[str, Any]:
    """Where the limits are kept."""
    return {"stack": job.place, "region": REGION, "endpoint_url": job.server}


def ancestries(job: Job) -> list[dict[str, Any]]:
    """How entities are made, where there is more than one level: ancestors first."""
    made = []
    for number in range(job.entities if job.levels > 1 else 0):
        ids = job.ancestry(f"entity-{number}")
        for child, parent in zip(ids[::-1], [None, *ids[:0:-1]], strict=True):
            made.append({"entity_id": child, "parent_id": parent, "cascade": parent is not None})
    return made


class Async(AsyncAdapter):
    """The asynchronous facade, as it comes."""

    options: ClassVar[dict[str, Any]] = {}

    async def open(self, job: Job) -> None:
        await self.make_table(job)
        self.repository = await self.make_repository(job)
        await self.configure(job)
        self._limiter = package.RateLimiter(repository=self.repository)
        self._takes = takes(job)
        self._more = _MORE if job.adjusts else None

    async def make_table(self, job: Job) -> None:
        """Opening makes it."""

    async def make_repository(self, job: Job) -> Any:
        """Open it."""
        return await package.Repository.open(**table(job), **self.options)

    async def configure(self, job: Job) -> None:
        """Store limits, and entities where they have ancestors."""
        await self.repository.set_system_defaults(limits(job))
        if not await self.repository.get_entity("entity-0"):
            for entity in ancestries(job):
                await self.repository.create_entity(**entity)

    async def take(self, entity: str) -> bool:
        try:
            async with self._limiter.acquire(entity, RESOURCE, self._takes) as lease:
                if self._more:
                    await lease.adjust(**self._more)
                return True
        except package.RateLimitExceeded:
            return False

    async def shut(self) -> None:
        await self.repository.close()


class AsyncPlain(Async):
    """A write for each acquire, and a call for each refusal."""

    options: ClassVar[dict[str, Any]] = {"coalesce": False, "refusal_cache_ttl": 0}


class AsyncBotocore(Async):
    """The same as it comes, through aiobotocore."""

    options: ClassVar[dict[str, Any]] = {"transport": "botocore"}


class AsyncExisting(Async):
    """0.17.0, as it comes."""

    async def make_table(self, job: Job) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            maker = package.Repository(name=job.place, region=REGION, endpoint_url=job.server)
        await maker.create_table()
        await maker.close()


class Threads(ThreadedAdapter):
    """The blocking facade, as it comes."""

    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, job: Job) -> None:
        self.make_table(job)
        repository = package.SyncRepository.open(**table(job), **self.options)
        repository.set_system_defaults(limits(job))
        self._repository = repository
        self._limiter = package.SyncRateLimiter(repository=repository)
        self._takes = takes(job)

    def make_table(self, job: Job) -> None:
        """Opening makes it."""

    def acquire(self, entity: str) -> bool:
        try:
            with self._limiter.acquire(entity, RESOURCE, self._takes):
                return True
        except package.RateLimitExceeded:
            return False

    def close(self) -> None:
        self._repository.close()


class ThreadsPlain(Threads):
    """A write for each acquire, and a call for each refusal."""

    options: ClassVar[dict[str, Any]] = {"coalesce": False, "refusal_cache_ttl": 0}


class ThreadsBotocore(Threads):
    """The same as it comes, through boto3."""

    options: ClassVar[dict[str, Any]] = {"transport": "botocore"}


class ThreadsExisting(Threads):
    """0.17.0, as it comes."""

    def make_table(self, job: Job) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            maker = package.SyncRepository(name=job.place, region=REGION, endpoint_url=job.server)
        maker.create_table()
        maker.close()
