"""Entities in DynamoDB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ...core.audit import AuditEvent
from ...core.exceptions import StoredDataError
from ...core.models import Entity
from ...ports.repository_protocol import EntityQuery
from ..damage import readable
from .audit import Recorder
from .codec import decode_entity_item, encode_entity_item, storable_map
from .contention import halfway, race, won
from .expressions import IS_NEW, PK, Field, Term
from .item_reader import record_name
from .older.old_buckets import OldBuckets
from .pages import AFTER_ALL, Query, read_page, read_pages
from .registries import Registries
from .schema import (
    gsi1_pk_parent,
    gsi1_sk_child,
    gsi3_pk_entity,
    key,
    pk_entity,
    sk_config,
    sk_meta,
)
from .table import Action, Key, Table, key_of
from .wire.values import Item

_CONFIGS_PER_TRANSACTION = 50
_CONFIG_PREFIX = sk_config("")
_VERSION = Field("version")


class DynamoEntities:
    """The entities, one record `#META` each. Configuration and usage share its partition."""

    def __init__(self, table: Table, recorder: Recorder) -> None:
        self._table = table
        self._recorder = recorder
        self._registries = Registries(table)
        # In a table that is being migrated, buckets and usage of an older shape.
        self.older: OldBuckets | None = None

    async def create(self, namespace_id: str, entity: Entity, event: AuditEvent) -> bool:
        actions = [
            self._table.putting(encode_entity_item(namespace_id, entity), IS_NEW),
            await self._recorder.recording(namespace_id, event),
        ]

        async def attempt() -> bool | None:
            if await won(self._table, actions):
                return True
            return None if await self.read(namespace_id, entity.id) is None else False

        return await race(self._table, f"entity {entity.id}", attempt)

    async def read(self, namespace_id: str, entity_id: str) -> Entity | None:
        item = await self._item(namespace_id, entity_id)
        return None if item is None else decode_entity_item(item)

    async def read_several(self, namespace_id: str, entity_ids: Sequence[str]) -> dict[str, Entity]:
        keys = (key(pk_entity(namespace_id, each), sk_meta()) for each in entity_ids)
        items = await self._table.batch_get(keys, consistent=True)
        return {entity.id: entity for entity in map(decode_entity_item, items)}

    async def _item(self, namespace_id: str, entity_id: str) -> Item | None:
        meta = key(pk_entity(namespace_id, entity_id), sk_meta())
        return await self._table.get(meta, consistent=True)

    async def update(
        self, namespace_id: str, entity: Entity, expected_version: int, event: AuditEvent
    ) -> Entity | None:
        recording = await self._recorder.recording(namespace_id, event)

        async def attempt() -> list[Entity] | None:
            item = await self._item(namespace_id, entity.id)
            if item is not None and "NULL" in item.get(_VERSION, ()):
                raise StoredDataError(record_name(item), "version is null, not a whole number")
            stored = None if item is None else decode_entity_item(item)
            if stored is None or stored.version != expected_version:
                return []
            changed = replace(
                stored,
                name=entity.name,
                metadata=dict(entity.metadata),
                version=expected_version + 1,
            )
            actions = [self._updating(namespace_id, changed), recording]
            return [changed] if await won(self._table, actions) else None

        updated = await race(self._table, f"entity {entity.id}", attempt)
        return updated[0] if updated else None

    def _updating(self, namespace_id: str, changed: Entity) -> Action:
        seen = changed.version - 1
        # Older clients stored no version for the first.
        is_as_seen = _VERSION.equals_or_is_absent if seen == 1 else _VERSION.equals
        terms: list[Term] = [
            PK.exists(),
            is_as_seen(seen),
            _VERSION.set(changed.version),
            Field("name").set(changed.name),
            Field("metadata").set(storable_map(changed.metadata)),
        ]
        return self._table.updating(key(pk_entity(namespace_id, changed.id), sk_meta()), terms)

    async def delete(self, namespace_id: str, entity_id: str, event: AuditEvent) -> int:
        """Delete the record `#META` last, with the event: until then, a retry finds the rest."""
        with halfway(f"Deleting entity {entity_id}"):
            deleted = await self._delete_configs(namespace_id, entity_id)
            items = await self._own_items(namespace_id, entity_id)
            others = [key_of(item) for item in items if item["SK"]["S"] != sk_meta()]
            others += await self._bucket_keys(namespace_id, entity_id)
            if self.older is not None:
                others += await self.older.keys(namespace_id, entity_id)
            deleted += await self._table.batch_delete(others)
            deleted += any(item["SK"]["S"] == sk_meta() for item in items)
            if deleted:
                told = event.with_details(records_deleted=deleted)
                meta = key(pk_entity(namespace_id, entity_id), sk_meta())
                recording = await self._recorder.recording(namespace_id, told)
                await self._table.transact([self._table.deleting(meta), recording])
        return deleted

    async def children(self, namespace_id: str, parent_id: str) -> list[Entity]:
        query = Query(gsi1_pk_parent(namespace_id, parent_id), index="GSI1")
        return list(readable(decode_entity_item, await read_pages(self._table, query)))

    async def page(
        self, namespace_id: str, query: EntityQuery, limit: int, cursor: str | None
    ) -> tuple[list[Entity], str | None]:
        listing = _listing(namespace_id, query, cursor)
        # One more than wanted tells whether another page follows.
        keys = await self._meta_keys(listing, cursor, limit + 1)
        wanted = keys[:limit]
        items = await self._table.batch_get(wanted, consistent=True)
        page = sorted(readable(decode_entity_item, items), key=lambda entity: entity.id)
        return page, _id_of(wanted[-1]) if len(wanted) < len(keys) else None

    async def _meta_keys(self, listing: Query, cursor: str | None, at_most: int) -> list[Key]:
        """Return the keys of entity records. The index of a namespace lists an entity's
        configurations beside its record."""
        found: list[Key] = []
        start: Item | None = None
        while True:
            items, start = await read_page(self._table, listing, start, at_most)
            keys = (key_of(item) for item in items if item["SK"]["S"] == sk_meta())
            found += [each for each in keys if _id_of(each) != cursor]
            if start is None or len(found) >= at_most:
                return found[:at_most]

    async def _own_items(self, namespace_id: str, entity_id: str, prefix: str = "") -> list[Item]:
        attributes = ("PK", "SK", "GSI3PK")
        query = Query(pk_entity(namespace_id, entity_id), prefix, attributes=attributes)
        return await read_pages(self._table, query)

    async def _bucket_keys(self, namespace_id: str, entity_id: str) -> list[Key]:
        query = Query(gsi3_pk_entity(namespace_id, entity_id), index="GSI3")
        return [key_of(item) for item in await read_pages(self._table, query)]

    async def _delete_configs(self, namespace_id: str, entity_id: str) -> int:
        """Delete the configuration records that the registry counts, together with their count."""
        deleted = 0
        some = partial(self._delete_some_configs, namespace_id, entity_id)
        while count := await race(self._table, f"entity {entity_id}", some):
            deleted += count
        return deleted

    async def _delete_some_configs(self, namespace_id: str, entity_id: str) -> int | None:
        items = await self._own_items(namespace_id, entity_id, _CONFIG_PREFIX)
        counted = [item for item in items if "GSI3PK" in item][:_CONFIGS_PER_TRANSACTION]
        if not counted:
            return 0
        actions = self._uncounting(namespace_id, counted)
        return len(counted) if await won(self._table, actions) else None

    def _uncounting(self, namespace_id: str, configs: Sequence[Item]) -> list[Action]:
        is_counted = (Field("GSI3PK").exists(),)
        resources = Counter(item["SK"]["S"].removeprefix(_CONFIG_PREFIX) for item in configs)
        return [
            *(self._table.deleting(key_of(item), is_counted) for item in configs),
            *self._registries.counting(
                namespace_id, {resource: -count for resource, count in resources.items()}
            ),
        ]


def _listing(namespace_id: str, query: EntityQuery, cursor: str | None) -> Query:
    """Return the query for entity records, in the index of children or of the namespace."""
    low = max(query.prefix, cursor or "")
    if query.parent_id is None:
        partition, index, first = namespace_id, "GSI4", pk_entity(namespace_id, "")
    else:
        partition = gsi1_pk_parent(namespace_id, query.parent_id)
        index, first = "GSI1", gsi1_sk_child("")
    return Query(partition, low=first + low, high=first + query.prefix + AFTER_ALL, index=index)


def _id_of(meta: Key) -> str:
    return str(meta["PK"]["S"]).partition("#")[2]
