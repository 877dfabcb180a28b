"""Which limits are in force for an entity and a resource."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.hierarchy import SYSTEM_SLOT, ConfigSlot, Slots, own_slots, shared_slots
from ...core.models import OnUnavailableAction
from ...ports.repository_protocol import ConfigPage
from ..scope import Scope
from .cache import ConfigCache
from .entity_cache import Verdict
from .resolution import Defaults, Named, Record, Resolution, combine, defaults, own

Records = Mapping[ConfigSlot, Record]
"""Those that entities share and that are fresh."""

_NOTHING_READ = ConfigPage()
_NOTHING_OWN = Resolution(None, None, None, None, cascade=False)
# To find them takes some milliseconds, once in the time for which configuration counts.
_MAX_NAMED = 10_000


async def resolve(scope: Scope, entity_id: str, resource: str) -> Resolution:
    """From the cache, or from the store in one read of the records that are not fresh."""
    cache, generation, now_ms = (
        scope.local.config_cache,
        scope.local.config_cache.generation,
        scope.io.now_ms(),
    )
    last = cache.verdict(entity_id, resource)
    if last is not None:
        if last.since_ms <= now_ms < last.until_ms:
            cache.hits += 1
            return last.resolution
        if not cache.is_fresh(last.since_ms, now_ms):
            last = None
    shared = cache.shared(resource, now_ms)
    if last is None and cache.ttl_ms:
        named = cache.named(now_ms) or await _find_named(scope, generation)
        if named.entity_ids is not None and entity_id not in named.entity_ids:
            if isinstance(shared, Defaults):
                cache.hits += 1
                return shared.resolution
            last = Verdict(resource, named.since_ms, named.since_ms, _NOTHING_OWN)
    return await _decide(scope, entity_id, resource, generation, last, shared)


async def _find_named(scope: Scope, generation: int) -> Named:
    async def find() -> Named:
        now_ms = scope.io.now_ms()
        configs = scope.store.configs
        return Named(now_ms, await configs.entities_with_records(scope.namespace_id, _MAX_NAMED))

    named = await scope.local.config_reads.share(
        scope.io, (scope.namespace_id, generation, "named"), find
    )
    scope.local.config_cache.keep_named(generation, named)
    return named


async def resolve_afresh(scope: Scope, entity_id: str, resource: str) -> Resolution:
    """From the store, whatever the cache says, and others read."""
    return await _decide(
        scope, entity_id, resource, scope.local.config_cache.generation, None, {}, afresh=True
    )


async def _decide(
    scope: Scope,
    entity_id: str,
    resource: str,
    generation: int,
    last: Verdict | None,
    shared: Defaults | Records,
    *,
    afresh: bool = False,
) -> Resolution:
    """Read what is not known. `last`: a verdict that knows what the entity's own records say.
    `generation`: that of the cache before it was asked for what is known."""
    cache, now_ms = scope.local.config_cache, scope.io.now_ms()
    wanted = () if isinstance(shared, Defaults) else _stale(resource, shared)
    if last is None:
        wanted = own_slots(entity_id, resource) + wanted
    page = _NOTHING_READ
    if wanted:
        asker = entity_id if last is None else None
        together = None if afresh or not cache.ttl_ms else generation
        now_ms, page = await _read(scope, wanted, asker, together)
    if not isinstance(shared, Defaults):
        shared = _keep_shared(cache, generation, resource, shared, page, now_ms)
    since_ms = now_ms if last is None else last.since_ms
    said = own(entity_id, resource, page) if last is None else last.resolution.own
    resolution = combine(said, shared.resolution)
    until_ms = min(since_ms, shared.since_ms) + cache.ttl_ms
    cache.keep(generation, entity_id, Verdict(resource, since_ms, until_ms, resolution), now_ms)
    return resolution


async def _read(
    scope: Scope, wanted: Slots, asker: str | None, generation: int | None
) -> tuple[int, ConfigPage]:
    """Records, and since when they are known. Those of a generation are read together with
    whoever wants them too: who comes after a change must not be told what was read before."""

    async def read() -> tuple[int, ConfigPage]:
        scope.local.config_cache.misses += len(wanted)
        now_ms = scope.io.now_ms()
        return now_ms, await scope.store.configs.read(scope.namespace_id, wanted, asker)

    if generation is None:
        return await read()
    what = (scope.namespace_id, generation, wanted, asker)
    return await scope.local.config_reads.share(scope.io, what, read)


def _stale(resource: str, fresh: Records) -> Slots:
    return tuple(slot for slot in shared_slots(resource) if slot not in fresh)


def _keep_shared(
    cache: ConfigCache,
    generation: int,
    resource: str,
    fresh: Records,
    page: ConfigPage,
    now_ms: int,
) -> Defaults:
    """What the records that were fresh and those that were read come to."""
    read = {slot: Record(now_ms, page.configs.get(slot)) for slot in _stale(resource, fresh)}
    found = defaults(resource, {**fresh, **read})
    cache.keep_records(generation, read)
    cache.keep_defaults(generation, resource, found)
    return found


async def resolve_on_unavailable(scope: Scope) -> OnUnavailableAction | None:
    """What the system record says; None when it says nothing."""
    cache, generation, now_ms = (
        scope.local.config_cache,
        scope.local.config_cache.generation,
        scope.io.now_ms(),
    )
    records = cache.records([SYSTEM_SLOT], now_ms)
    if not records:
        page = await scope.store.configs.read(scope.namespace_id, [SYSTEM_SLOT])
        records = {SYSTEM_SLOT: Record(now_ms, page.configs.get(SYSTEM_SLOT))}
        cache.keep_records(generation, records)
    system = records[SYSTEM_SLOT].config
    return None if system is None else system.on_unavailable
