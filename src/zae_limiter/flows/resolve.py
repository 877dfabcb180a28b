"""Which limits are in force for an entity and a resource."""

from __future__ import annotations

from ..core.hierarchy import SYSTEM_SLOT, ConfigSlot, decide, slots
from ..core.limit import LimitSet
from ..core.models import Entity, LimiterConfig, OnUnavailableAction
from .config_cache import Resolution
from .scope import Scope

Fresh = dict[ConfigSlot, tuple[int, LimiterConfig | None]]


async def resolve(scope: Scope, entity_id: str, resource: str) -> Resolution:
    """From the cache, or from the store in one read of the records that are not fresh."""
    now_ms = scope.io.now_ms()
    known = scope.cache.resolution(entity_id, resource, now_ms)
    if known is not None:
        return known
    fresh = scope.cache.fresh_slots((slot for _, slot in slots(entity_id, resource)), now_ms)
    return await _read(
        scope, entity_id, resource, fresh, scope.cache.fresh_entity(entity_id, now_ms)
    )


async def resolve_afresh(scope: Scope, entity_id: str, resource: str) -> Resolution:
    """From the store, whatever the cache says."""
    return await _read(scope, entity_id, resource, {}, None)


async def _read(
    scope: Scope,
    entity_id: str,
    resource: str,
    fresh: Fresh,
    entity: tuple[int, Entity | None] | None,
) -> Resolution:
    cache, generation = scope.cache, scope.cache.generation
    expires_at_ms = scope.io.now_ms() + cache.ttl_ms
    stale = [slot for _, slot in slots(entity_id, resource) if slot not in fresh]
    page = await scope.store.configs.read(
        scope.namespace_id, stale, entity_id if entity is None else None
    )
    known = fresh | {slot: (expires_at_ms, page.configs.get(slot)) for slot in stale}
    owner = (expires_at_ms, page.entity) if entity is None else entity
    records = {slot: config for slot, (_, config) in known.items()}
    resolution = _decide(entity_id, resource, records, owner[1])
    until_ms = min(owner[0], *(expires for expires, _ in known.values()))
    cache.keep(
        generation,
        {slot: known[slot] for slot in stale},
        {entity_id: owner} if entity is None else {},
        {(entity_id, resource): (until_ms, resolution)},
    )
    return resolution


def _decide(
    entity_id: str,
    resource: str,
    records: dict[ConfigSlot, LimiterConfig | None],
    entity: Entity | None,
) -> Resolution:
    limits, source = decide(entity_id, resource, records)
    system = records.get(SYSTEM_SLOT)
    return Resolution(
        limits=None if limits is None else LimitSet.of(limits),
        source=source,
        on_unavailable=None if system is None else system.on_unavailable,
        parent_id=None if entity is None else entity.parent_id,
        cascade=entity is not None and entity.cascade,
    )


async def resolve_on_unavailable(scope: Scope) -> OnUnavailableAction | None:
    """What the system record says; None when it says nothing."""
    now_ms = scope.io.now_ms()
    known = scope.cache.system(now_ms)
    if known is None:
        generation = scope.cache.generation
        page = await scope.store.configs.read(scope.namespace_id, [SYSTEM_SLOT])
        known = now_ms + scope.cache.ttl_ms, page.configs.get(SYSTEM_SLOT)
        scope.cache.keep(generation, {SYSTEM_SLOT: known})
    return None if known[1] is None else known[1].on_unavailable
