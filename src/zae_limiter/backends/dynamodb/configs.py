"""Configuration in DynamoDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...core.audit import AuditEvent
from ...core.hierarchy import ConfigSlot
from ...core.models import LimiterConfig
from ...core.validation import validate_identifier
from ...local.bounded import Bounded
from ...ports.repository_protocol import ConfigPage, Declaration
from .audit import Recorder
from .codec import decode_config_item, decode_entity_item
from .config_records import ConfigKey, StoredConfig, setting
from .contention import race, won
from .managed import Marks
from .pages import AFTER_ALL, Query, read_page, read_pages
from .registries import Registries
from .schema import gsi3_pk_entity_config, key, pk_entity, sk_config, sk_meta
from .table import Action, Key, Table, key_text
from .wire.values import Item

Found = dict[tuple[str, str], Item]

# A query over so many records of usual size bills no more than three reads by key.
FEW = 16
_MAX_CROWDED = 10_000
# Versions begin with 1.
_REFUSED = 0


class DynamoConfigs:
    """The configuration records, one for each slot. A deleted record leaves its version behind."""

    def __init__(self, table: Table, recorder: Recorder) -> None:
        self._table = table
        self._recorder = recorder
        self._registries = Registries(table)
        self._marks = Marks(table)
        # Entities with so many records that a query costs more than reads by key.
        self._crowded: Bounded[str, bool] = Bounded(_MAX_CROWDED)

    async def read(
        self, namespace_id: str, slots: Sequence[ConfigSlot], entity_id: str | None = None
    ) -> ConfigPage:
        keys = {slot: ConfigKey(namespace_id, slot).key for slot in slots}
        wanted = list(keys.values())
        if entity_id is None:
            return _page(keys, await self._found(wanted), None)
        partition = pk_entity(namespace_id, entity_id)
        wanted.append(key(partition, sk_meta()))
        found = await self._neighbours(partition) if are_neighbours(entity_id, slots) else None
        if found is None:
            found = await self._found(wanted)
        return _page(keys, found, found.get((partition, sk_meta())))

    async def _neighbours(self, partition: str) -> Found | None:
        """Return the records of one entity, if they are few. A query bills the sum of its records,
        a batch rounds up each one: few records together cost as much as one by its key."""
        if self._crowded.get(partition):
            return None
        query = Query(partition, low=sk_config(""), high=sk_meta())
        items, more = await read_page(self._table, query, limit=FEW)
        if more is not None:
            self._crowded.put(partition, True)
            return None
        return _by_key(items)

    async def entities_with_records(self, namespace_id: str, at_most: int) -> None:
        # Only an index could list them. Its reads are not consistent and would miss new owners.
        return None

    async def write(
        self,
        namespace_id: str,
        slot: ConfigSlot,
        change: LimiterConfig,
        event: AuditEvent,
        declaration: Declaration | None = None,
    ) -> int | None:
        config_key = ConfigKey(namespace_id, slot)
        recording = await self._recorder.recording(namespace_id, event)

        async def attempt() -> int | None:
            stored = await self._stored(config_key)
            if not _is_current(declaration, stored):
                return _REFUSED
            actions = [
                self._table.updating(config_key.key, setting(stored, change)),
                *self._registering(stored, is_there=True),
                *self._marking(config_key, declaration),
                recording,
            ]
            if stored.item is None:
                actions.append(self._table.checking(config_key.deleted_key, stored.deleted_as_seen))
            return stored.version + 1 if await won(self._table, actions) else None

        version = await race(self._table, f"{config_key.pk} {config_key.sk}", attempt)
        return None if version == _REFUSED else version

    async def delete(
        self,
        namespace_id: str,
        slot: ConfigSlot,
        event: AuditEvent,
        declaration: Declaration | None = None,
    ) -> bool:
        config_key = ConfigKey(namespace_id, slot)
        recording = await self._recorder.recording(namespace_id, event)

        async def attempt() -> bool | None:
            stored = await self._stored(config_key)
            if not stored.says or not _is_current(declaration, stored):
                return False
            actions = [
                self._table.deleting(config_key.key, stored.as_seen),
                self._table.putting(stored.remains()),
                *self._registering(stored, is_there=False),
                *self._marking(config_key, declaration),
                recording,
            ]
            return True if await won(self._table, actions) else None

        return await race(self._table, f"{config_key.pk} {config_key.sk}", attempt)

    async def marks(self, namespace_id: str) -> dict[ConfigSlot, str]:
        return await self._marks.of(namespace_id)

    async def mark(self, namespace_id: str, slot: ConfigSlot, mark: str | None) -> None:
        await self._marks.set(namespace_id, slot, mark)

    def _marking(self, config_key: ConfigKey, declaration: Declaration | None) -> list[Action]:
        if declaration is None:
            return []
        return [self._marks.marking(config_key.namespace_id, config_key.slot, declaration.mark)]

    async def entities_with_limits(
        self, namespace_id: str, resource: str, limit: int | None, cursor: str | None
    ) -> tuple[list[str], str | None]:
        partition = gsi3_pk_entity_config(namespace_id, resource)
        query = Query(partition, index="GSI3")
        if cursor is not None:
            low = validate_identifier(cursor, "cursor")
            query = Query(partition, low=low, high=AFTER_ALL, index="GSI3")
        # Two more than wanted: the id to start after, and one that tells of another page.
        items = await read_pages(self._table, query, None if limit is None else limit + 2)
        ids = [entity_id for item in items if (entity_id := item["GSI3SK"]["S"]) != cursor]
        page = ids if limit is None else ids[:limit]
        return page, page[-1] if len(page) < len(ids) else None

    async def resources_with_entity_limits(self, namespace_id: str) -> list[str]:
        return await self._registries.of_entities(namespace_id)

    async def resources_with_defaults(self, namespace_id: str) -> list[str]:
        return await self._registries.of_resources(namespace_id)

    async def _stored(self, config_key: ConfigKey) -> StoredConfig:
        found = await self._found([config_key.key, config_key.deleted_key])
        return StoredConfig(
            config_key,
            found.get(key_text(config_key.key)),
            found.get(key_text(config_key.deleted_key)),
        )

    async def _found(self, keys: Sequence[Key]) -> Found:
        return _by_key(await self._table.batch_get(keys, consistent=True))

    def _registering(self, stored: StoredConfig, *, is_there: bool) -> list[Action]:
        """Return the actions that keep the registries up to date."""
        slot, namespace_id = stored.config_key.slot, stored.config_key.namespace_id
        if slot.entity_id is not None:
            change = int(is_there) - int(stored.is_listed)
            return self._registries.counting(namespace_id, {stored.config_key.resource: change})
        if slot.resource is not None:
            return [self._registries.listing(namespace_id, slot.resource, is_there=is_there)]
        return []


def are_neighbours(entity_id: str, slots: Sequence[ConfigSlot]) -> bool:
    """Return whether all slots are the entity's own: then their records share a partition."""
    return all(slot.entity_id == entity_id for slot in slots)


def _is_current(declaration: Declaration | None, stored: StoredConfig) -> bool:
    return declaration is None or declaration.is_current(_config(stored.item))


def _by_key(items: Sequence[Item]) -> Found:
    return {key_text(item): item for item in items}


def _page(keys: Mapping[ConfigSlot, Key], found: Found, entity: Item | None) -> ConfigPage:
    configs = {slot: _config(found.get(key_text(key))) for slot, key in keys.items()}
    return ConfigPage(
        {slot: config for slot, config in configs.items() if config is not None},
        None if entity is None else decode_entity_item(entity),
    )


def _config(item: Item | None) -> LimiterConfig | None:
    """Decode a record; None for a record that sets nothing."""
    config = None if item is None else decode_config_item(item)
    return None if config == LimiterConfig() else config
