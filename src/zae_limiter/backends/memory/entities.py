"""Entities in memory."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

from ...core.audit import AuditEvent
from ...core.models import Entity
from ...ports.repository_protocol import EntityQuery
from .readings import forget
from .tables import Tables, drop


class MemoryEntities:
    """Entities by namespace and id. Entities are copied on the way in and out: their metadata is
    mutable."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def create(self, namespace_id: str, entity: Entity, event: AuditEvent) -> bool:
        tables = self._tables
        with tables.lock:
            if (namespace_id, entity.id) in tables.entities:
                return False
            tables.entities[namespace_id, entity.id] = copy_entity(entity)
            tables.record(namespace_id, event)
        return True

    async def read(self, namespace_id: str, entity_id: str) -> Entity | None:
        with self._tables.lock:
            entity = self._tables.entities.get((namespace_id, entity_id))
        return None if entity is None else copy_entity(entity)

    async def read_several(self, namespace_id: str, entity_ids: Sequence[str]) -> dict[str, Entity]:
        with self._tables.lock:
            found = [self._tables.entities.get((namespace_id, each)) for each in entity_ids]
        return {entity.id: copy_entity(entity) for entity in found if entity is not None}

    async def update(
        self, namespace_id: str, entity: Entity, expected_version: int, event: AuditEvent
    ) -> Entity | None:
        tables = self._tables
        with tables.lock:
            stored = tables.entities.get((namespace_id, entity.id))
            if stored is None or stored.version != expected_version:
                return None
            changed = replace(
                stored,
                name=entity.name,
                metadata=deepcopy(entity.metadata),
                version=expected_version + 1,
            )
            tables.entities[namespace_id, entity.id] = changed
            tables.record(namespace_id, event)
        return copy_entity(changed)

    async def delete(self, namespace_id: str, entity_id: str, event: AuditEvent) -> int:
        tables = self._tables
        owner = (namespace_id, entity_id)
        with tables.lock:
            # Buckets first: forgetting one adds its last hour to the usage, which is then dropped.
            deleted = (
                forget(tables, lambda key: key[:2] == owner)
                + drop(tables.entities, lambda key: key == owner)
                + drop(tables.configs, lambda key: (key[0], key[1].entity_id) == owner)
                + drop(tables.usage, lambda key: key[:2] == owner)
                + drop(tables.snapshots, lambda key: key[:2] == owner)
            )
            if deleted:
                tables.record(namespace_id, event.with_details(records_deleted=deleted))
        return deleted

    async def children(self, namespace_id: str, parent_id: str) -> list[Entity]:
        return self._sorted(namespace_id, EntityQuery(parent_id=parent_id))

    async def page(
        self, namespace_id: str, query: EntityQuery, limit: int, cursor: str | None
    ) -> tuple[list[Entity], str | None]:
        found = self._sorted(namespace_id, query)
        later = [entity for entity in found if cursor is None or entity.id > cursor]
        page = later[:limit]
        return page, page[-1].id if len(page) < len(later) else None

    def _sorted(self, namespace_id: str, query: EntityQuery) -> list[Entity]:
        with self._tables.lock:
            found = sorted(self._tables.entities.items())
        return [
            copy_entity(entity)
            for (owner, entity_id), entity in found
            if owner == namespace_id
            and entity_id.startswith(query.prefix)
            and query.parent_id in (None, entity.parent_id)
        ]


def copy_entity(entity: Entity) -> Entity:
    """Return a copy of the entity with metadata of its own."""
    return replace(entity, metadata=deepcopy(entity.metadata))
