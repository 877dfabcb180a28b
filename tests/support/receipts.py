"""Limits, entities and questions of the tests about receipts."""

from __future__ import annotations

from typing import Any, cast

from tests.support.drivers import Awaited, World, balance
from zae_limiter import Lease, Limit, RateLimiter, SyncLease

RPM = Limit.per_day("rpm", 10)
TPM = Limit.per_day("tpm", 1000)
WANTED = {"rpm": 1, "tpm": 500}
FULL = {"rpm": 0, "tpm": 0}


async def prepare(world: World) -> RateLimiter:
    """Make a key below an organisation, both with the limits above."""
    await world.repository.set_system_defaults([RPM, TPM])
    await world.repository.create_entity("org")
    await world.repository.create_entity("key-1", parent_id="org", cascade=True)
    return world.limiter()


async def used(world: World) -> dict[str, int]:
    """Return what key and organisation have used, in whole tokens: both the same."""
    levels = []
    for entity in ("key-1", "org"):
        held = await balance(world.repository, entity)
        levels.append({limit.name: _used(limit, held) for limit in (RPM, TPM)})
    assert levels[0] == levels[1]
    return levels[0]


def _used(limit: Limit, held: dict[str, int]) -> int:
    return limit.capacity - held.get(limit.name, limit.capacity * 1000) // 1000


async def from_token(limiter: RateLimiter, token: str) -> Lease:
    """`Lease.from_token`, by the driver of the limiter."""
    if isinstance(limiter, Awaited):
        found: Any = SyncLease.from_token(limiter.inner, token)
        return cast(Lease, Awaited(found))
    return await Lease.from_token(limiter, token)
