"""Which limits are in force for an entity and a resource."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.hierarchy import SYSTEM_SLOT, ConfigSlot, Slots, own_slots, shared_slots
from ..core.models import OnUnavailableAction
from ..ports.repository_protocol import ConfigPage
from .resolution import Defaults, Record, Resolution, combine, defaults, own
from .scope import Scope
from .verdicts import Verdict


async def resolve(scope: Scope, entity_id: str, resource: str) -> Resolution:
    """From the cache, or from the store in one read of the records that are not fresh."""
    cache, now_ms = scope.cache, scope.io.now_ms()
    last = cache.verdict(entity_id, resource)
    if last is not None:
        if last.since_ms <= now_ms < last.until_ms:
            cache.hits += 1
            return last.resolution
        if not cache.is_fresh(last.since_ms, now_ms):
            last = None
    return await _decide(scope, entity_id, resource, last, cache.shared(resource, now_ms))


async def resolve_afresh(scope: Scope, entity_id: str, resource: str) -> Resolution:
    """From the store, whatever the cache says."""
    return await _decide(scope, entity_id, resource, None, {})


async def _decide(
    scope: Scope,
    entity_id: str,
    resource: str,
    last: Verdict | None,
    shared: Defaults | dict[ConfigSlot, Record],
) -> Resolution:
    """Read what is not known. `last`: a verdict that knows what the entity's own records say."""
    cache, generation, now_ms = scope.cache, scope.cache.generation, scope.io.now_ms()
    stale = () if isinstance(shared, Defaults) else _stale(resource, shared)
    page = await _read(scope, entity_id, resource, stale, is_own_known=last is not None)
    if not isinstance(shared, Defaults):
        read = {slot: Record(now_ms, page.configs.get(slot)) for slot in stale}
        shared = defaults(resource, {**shared, **read})
        cache.keep_records(generation, read)
        cache.keep_defaults(generation, resource, shared)
    since_ms = now_ms if last is None else last.since_ms
    said = own(entity_id, resource, page) if last is None else last.resolution.own
    resolution = combine(said, shared.resolution)
    until_ms = min(since_ms, shared.since_ms) + cache.ttl_ms
    cache.keep(generation, entity_id, Verdict(resource, since_ms, until_ms, resolution), now_ms)
    return resolution


def _stale(resource: str, fresh: Mapping[ConfigSlot, Record]) -> Slots:
    return tuple(slot for slot in shared_slots(resource) if slot not in fresh)


async def _read(
    scope: Scope, entity_id: str, resource: str, stale: Slots, *, is_own_known: bool
) -> ConfigPage:
    """All that is wanted in one call, if anything is."""
    configs, namespace_id = scope.store.configs, scope.namespace_id
    scope.cache.misses += len(stale) + (not is_own_known)
    if not is_own_known:
        return await configs.read(namespace_id, own_slots(entity_id, resource) + stale, entity_id)
    return await configs.read(namespace_id, stale) if stale else ConfigPage()


async def resolve_on_unavailable(scope: Scope) -> OnUnavailableAction | None:
    """What the system record says; None when it says nothing."""
    cache, generation, now_ms = scope.cache, scope.cache.generation, scope.io.now_ms()
    records = cache.records([SYSTEM_SLOT], now_ms)
    if not records:
        page = await scope.store.configs.read(scope.namespace_id, [SYSTEM_SLOT])
        records = {SYSTEM_SLOT: Record(now_ms, page.configs.get(SYSTEM_SLOT))}
        cache.keep_records(generation, records)
    system = records[SYSTEM_SLOT].config
    return None if system is None else system.on_unavailable
