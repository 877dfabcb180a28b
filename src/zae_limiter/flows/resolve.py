"""Which limits are in force for an entity and a resource."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ..core.hierarchy import SYSTEM_SLOT, ConfigSlot, decide, slots
from ..core.limit import Limit, LimitSet
from ..core.models import ConfigSource, Entity, LimiterConfig, OnUnavailableAction
from .config_cache import Kept, Resolution
from .scope import Scope

Fresh = dict[ConfigSlot, Kept[LimiterConfig | None]]


async def resolve(scope: Scope, entity_id: str, resource: str) -> Resolution:
    """From the cache, or from the store in one read of the records that are not fresh."""
    now_ms = scope.io.now_ms()
    known = scope.cache.resolution(entity_id, resource, now_ms)
    if known is not None:
        return known
    levels = [slot for _, slot in slots(entity_id, resource)]
    return await _read(scope, entity_id, resource, levels, scope.cache.fresh_slots(levels, now_ms))


async def resolve_afresh(scope: Scope, entity_id: str, resource: str) -> Resolution:
    """From the store, whatever the cache says."""
    levels = [slot for _, slot in slots(entity_id, resource)]
    return await _read(scope, entity_id, resource, levels, {})


async def _read(
    scope: Scope, entity_id: str, resource: str, levels: Sequence[ConfigSlot], fresh: Fresh
) -> Resolution:
    cache, generation = scope.cache, scope.cache.generation
    until_ms = scope.io.now_ms() + cache.ttl_ms
    stale = [slot for slot in levels if slot not in fresh]
    page = await scope.store.configs.read(scope.namespace_id, stale, entity_id)
    read = page.configs
    known = {**read, **{slot: config for slot, (_, config) in fresh.items()}}
    resolution = _decide(entity_id, resource, known, page.entity)
    cache.keep(
        generation,
        {slot: (until_ms, read.get(slot)) for slot in stale if slot.entity_id is None},
        (entity_id, resource),
        (min([until_ms, *(kept[0] for kept in fresh.values())]), resolution),
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
    on_unavailable = None if system is None else system.on_unavailable
    if entity is None:
        return _resolution(limits, source, on_unavailable, None, False)
    return _resolution(limits, source, on_unavailable, entity.parent_id, entity.cascade)


# Most entities have nothing of their own: all of them share what was decided for one.
@lru_cache(maxsize=4096)
def _resolution(
    limits: tuple[Limit, ...] | None,
    source: ConfigSource | None,
    on_unavailable: OnUnavailableAction | None,
    parent_id: str | None,
    cascade: bool,
) -> Resolution:
    limit_set = None if limits is None else LimitSet.of(limits)
    return Resolution(limit_set, source, on_unavailable, parent_id, cascade)


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
