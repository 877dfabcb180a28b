"""Repositories in memory, for tests of code that uses a limiter."""

from __future__ import annotations

from ..ports.clock import Clock
from ..repository import Repository
from ..sync_repository import SyncRepository

_URL = "memory://"


async def memory_repository(
    namespace: str | None = None, *, clock: Clock | None = None, config_cache_ttl: float = 60
) -> Repository:
    """A repository of its own, empty, gone with the last reference to it.

    clock = ManualClock()
    limiter = RateLimiter(repository=await memory_repository(clock=clock))
    """
    return await Repository.open(
        namespace, url=_URL, clock=clock, config_cache_ttl=config_cache_ttl
    )


def sync_memory_repository(
    namespace: str | None = None, *, clock: Clock | None = None, config_cache_ttl: float = 60
) -> SyncRepository:
    """`memory_repository` without await."""
    return SyncRepository.open(namespace, url=_URL, clock=clock, config_cache_ttl=config_cache_ttl)
