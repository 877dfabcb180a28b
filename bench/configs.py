"""Looking for limits on DynamoDB, and changing them. Runs with 0.17.0 too, but for what needs a
clock of its own or the version of a record."""

from __future__ import annotations

import random
from typing import Any

from .dynamodb import RESOURCE, Async, AsyncExisting, limits, package, table
from .worker.adapter import FOR_EVER_S, Lanes, Tape
from .worker.job import Job

_SEED = 2
_RESOURCES = 10
# A hundredth of all users has limits of its own; each user comes ten times a day.
_PREMIUM_SHARE = 100
_DAY_S = 86_400
_REQUESTS_PER_USER = 10


class _Levels(Async):
    """Limits are stored for the system, for the resource, and for the first entity."""

    async def configure(self, job: Job) -> None:
        await self.repository.set_system_defaults(limits(job))
        await self.repository.set_resource_defaults(RESOURCE, limits(job))
        await self.repository.set_limits("entity-0", limits(job), RESOURCE)


class Cached(_Levels):
    """What is in the cache is found there."""

    async def take(self, entity: str) -> bool:
        found = await self.repository.resolve_limits(entity, RESOURCE)
        return bool(found[0])


class Read(Cached):
    """Nothing is in the cache."""

    async def take(self, entity: str) -> bool:
        await self.repository.invalidate_config_cache()
        return await super().take(entity)


class Acquire(_Levels):
    """An acquire that finds nothing in the cache."""

    async def take(self, entity: str) -> bool:
        await self.repository.invalidate_config_cache()
        return await super().take(entity)


class CachedExisting(Cached, AsyncExisting):
    """0.17.0, as it comes."""


class ReadExisting(Read, AsyncExisting):
    """0.17.0, as it comes."""


class AcquireExisting(Acquire, AsyncExisting):
    """0.17.0, as it comes."""


class Version(_Levels):
    """All tasks change one record. `admitted`: how far its version has risen."""

    async def open(self, job: Job) -> None:
        await super().open(job)
        self._change = package.LimiterConfig(limits=limits(job))

    async def take(self, entity: str) -> bool:
        await self.repository.set_config("resource", self._change, resource=RESOURCE)
        return True

    def run(self, lanes: Lanes, seconds: float = FOR_EVER_S) -> Tape:
        before = self._runner.run(self._version())
        tape = super().run(lanes, seconds)
        tape.admitted = self._runner.run(self._version()) - before
        return tape

    async def _version(self) -> int:
        found = await self.repository.get_config("resource", resource=RESOURCE)
        version: int = found.config_version
        return version


class Sparse(Async):
    """Users who come ten times a day for one of ten resources: the day passes as they come."""

    async def open(self, job: Job) -> None:
        from zae_limiter.testing import ManualClock

        self._clock = ManualClock()
        self._step_s = _DAY_S / (_REQUESTS_PER_USER * job.entities)
        self._draw = random.Random(_SEED)
        await super().open(job)

    async def make_repository(self, job: Job) -> Any:
        return await package.Repository.open(**table(job), clock=self._clock)

    async def configure(self, job: Job) -> None:
        await self.repository.set_system_defaults(limits(job))
        for number in range(_RESOURCES):
            await self.repository.set_resource_defaults(f"{RESOURCE}-{number}", limits(job))
        for number in range(job.entities // _PREMIUM_SHARE):
            await self.repository.set_limits(f"entity-{number}", limits(job))

    async def take(self, entity: str) -> bool:
        self._clock.advance(self._step_s)
        resource = f"{RESOURCE}-{self._draw.randrange(_RESOURCES)}"
        found = await self.repository.resolve_limits(entity, resource)
        return bool(found[0])
