"""The flow that finds the limits in force for an entity and a resource."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.hierarchy import SYSTEM_SLOT, ConfigSlot, Slots, own_slots, shared_slots
from ...core.models import OnUnavailableAction
from ...ports.repository_protocol import ConfigPage
from ..scope import Scope
from .cache import RecordOwners
from .entity_cache import ResolvedEntry
from .registration import confirm_registration
from .resolution import (
    NO_SETTINGS,
    OwnSettings,
    Resolution,
    SharedRecord,
    own_settings,
    shared_settings,
    with_own,
)

# An entity's own settings, and before them the time when its records were read.
_Own = tuple[int, OwnSettings]
_Records = Mapping[ConfigSlot, SharedRecord]

_NOTHING_READ = ConfigPage()
# A list of so many takes a few milliseconds, once in a TTL.
_MAX_OWNERS = 10_000


async def resolve(scope: Scope, entity_id: str, resource: str) -> Resolution:
    """Decide from the cache, or after one read of the records that are not fresh."""
    cache, now_ms = scope.local.config_cache, scope.io.now_ms()
    entry = cache.entry(entity_id, resource)
    if entry is not None and entry.since_ms <= now_ms < entry.until_ms:
        cache.hits += 1
        return entry.resolution
    await confirm_registration(scope)
    epoch = cache.epoch
    own: _Own | None = None
    records = cache.records(shared_slots(resource), now_ms)
    if entry is not None and cache.is_fresh(entry.since_ms, now_ms):
        own = entry.since_ms, entry.resolution.own
    elif cache.ttl_ms:
        owners = cache.owners(now_ms) or await _list_owners(scope, epoch)
        if owners.exclude(entity_id):
            if len(records) == len(shared_slots(resource)):
                cache.hits += 1
                return shared_settings(resource, *records.values()).resolution
            own = owners.since_ms, NO_SETTINGS
    return await _decide(scope, entity_id, resource, epoch, records, own)


async def resolve_afresh(scope: Scope, entity_id: str, resource: str) -> Resolution:
    """Decide after a read of every record, which is shared with no other task."""
    epoch = scope.local.config_cache.epoch
    return await _decide(scope, entity_id, resource, epoch, {}, None, afresh=True)


async def _list_owners(scope: Scope, epoch: int) -> RecordOwners:
    async def read() -> RecordOwners:
        now_ms, configs = scope.io.now_ms(), scope.store.configs
        found = await configs.entities_with_records(scope.namespace_id, _MAX_OWNERS)
        return RecordOwners(now_ms, found)

    key = (scope.namespace_id, epoch, "owners")
    owners = await scope.local.config_reads.share(scope.io, key, read)
    scope.local.config_cache.keep_owners(epoch, owners)
    return owners


async def _decide(
    scope: Scope,
    entity_id: str,
    resource: str,
    epoch: int,
    records: _Records,
    own: _Own | None,
    *,
    afresh: bool = False,
) -> Resolution:
    """Read what the cache did not know, decide, and keep the outcome.

    `epoch`: the cache's, before it was asked. `records`, `own`: what it knew.
    """
    cache, now_ms, page = scope.local.config_cache, scope.io.now_ms(), _NOTHING_READ
    wanted = stale = tuple(slot for slot in shared_slots(resource) if slot not in records)
    if own is None:
        wanted = own_slots(entity_id, resource) + stale
    if wanted:
        joins = cache.ttl_ms > 0 and not afresh
        asker = entity_id if own is None else None
        now_ms, page = await _read(scope, wanted, asker, epoch if joins else None)
    if stale:
        read = {slot: SharedRecord(now_ms, page.configs.get(slot)) for slot in stale}
        cache.keep_records(epoch, read)
        records = {slot: read.get(slot) or records[slot] for slot in shared_slots(resource)}
    shared = shared_settings(resource, *records.values())
    since_ms, settings = own or (now_ms, own_settings(entity_id, resource, page))
    resolution = with_own(shared.resolution, settings)
    until_ms = min(since_ms, shared.since_ms) + cache.ttl_ms
    if scope.namespace_name:
        until_ms = min(until_ms, cache.registered_until_ms)
    entry = ResolvedEntry(resource, since_ms, until_ms, resolution)
    cache.keep_entry(epoch, entity_id, entry, now_ms)
    return resolution


async def _read(
    scope: Scope, wanted: Slots, asker: str | None, epoch: int | None
) -> tuple[int, ConfigPage]:
    """Read records, and say when. Tasks of one `epoch` share the read: without that bound, a
    task that comes after a change of its own could join a read from before the change."""

    async def read() -> tuple[int, ConfigPage]:
        scope.local.config_cache.misses += len(wanted)
        now_ms = scope.io.now_ms()
        return now_ms, await scope.store.configs.read(scope.namespace_id, wanted, asker)

    if epoch is None:
        return await read()
    key = (scope.namespace_id, epoch, wanted, asker)
    return await scope.local.config_reads.share(scope.io, key, read)


async def resolve_on_unavailable(scope: Scope) -> OnUnavailableAction | None:
    """Find the action of the system record; None if it names none."""
    cache, now_ms = scope.local.config_cache, scope.io.now_ms()
    epoch = cache.epoch
    records = cache.records((SYSTEM_SLOT,), now_ms)
    if not records:
        page = await scope.store.configs.read(scope.namespace_id, [SYSTEM_SLOT])
        records = {SYSTEM_SLOT: SharedRecord(now_ms, page.configs.get(SYSTEM_SLOT))}
        cache.keep_records(epoch, records)
    system = records[SYSTEM_SLOT].config
    return None if system is None else system.on_unavailable
