"""Entities: made, read, changed and deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...core.audit import AuditAction
from ...core.exceptions import (
    EntityExistsError,
    EntityNotFoundError,
    EntityVersionError,
    ValidationError,
)
from ...core.hierarchy import MAX_LEVELS
from ...core.models import Entity
from ...core.validation import validate_identifier, validate_metadata, validate_text
from ...core.windows import iso_ms
from ...ports.repository_protocol import EntityQuery
from ..scope import Scope, bounded
from .audit import check_page_size, new_event

# Each failed attempt means that someone else's update succeeded; a bound keeps it finite.
_MAX_ATTEMPTS = 64


def new_entity(
    entity_id: str,
    name: str | None,
    parent_id: str | None,
    cascade: bool,
    metadata: dict[str, Any] | None,
) -> Entity:
    """An entity as it is about to be made."""
    return Entity(entity_id, name, parent_id, cascade, {} if metadata is None else metadata)


@bounded
async def create_entity(
    scope: Scope, entity: Entity, principal: str | None, exist_ok: bool = False
) -> Entity:
    """Store a new entity, or return the stored one if it may exist and is charged alike. The
    parent need not exist yet; a cycle is refused."""
    created = replace(
        entity,
        name=entity.id if entity.name is None else validate_text("name", entity.name),
        metadata=validate_metadata(entity.metadata),
        created_at=iso_ms(scope.io.now_ms()),
    )
    validate_identifier(created.id)
    if created.parent_id is not None:
        validate_identifier(created.parent_id, "parent_id")
    if not isinstance(created.cascade, bool):
        raise ValidationError("cascade", created.cascade, "must be true or false")
    event = new_event(
        scope.io,
        AuditAction.ENTITY_CREATED,
        created.id,
        principal,
        name=created.name,
        parent_id=created.parent_id,
        cascade=created.cascade,
        metadata=created.metadata,
    )
    if created.parent_id is not None:
        await _check_ancestors(scope, created)
    for _ in range(_MAX_ATTEMPTS):
        if await scope.store.entities.create(scope.namespace_id, created, event):
            scope.local.config_cache.invalidate(created.id)
            return created
        stored = await get_entity(scope, created.id) if exist_ok else None
        if stored is not None:
            return _charged_alike(stored, created)
        if not exist_ok:
            break
    raise EntityExistsError(created.id)


def _charged_alike(stored: Entity, wanted: Entity) -> Entity:
    """Return the stored entity if it has the wanted parent and cascade, else refuse."""
    for field in ("parent_id", "cascade"):
        was, now = getattr(stored, field), getattr(wanted, field)
        if was != now:
            raise EntityExistsError(wanted.id, f"with {field} {was!r}, not {now!r}")
    return stored


async def _check_ancestors(scope: Scope, entity: Entity) -> None:
    ancestor = entity.parent_id
    path = [entity.id]
    while ancestor is not None:
        if ancestor in path:
            chain = " > ".join([*path, ancestor])
            raise ValidationError("parent_id", entity.parent_id, f"would form a cycle: {chain}")
        if len(path) == MAX_LEVELS:
            raise ValidationError(
                "parent_id", entity.parent_id, f"would nest deeper than {MAX_LEVELS} levels"
            )
        path.append(ancestor)
        found = await scope.store.entities.read(scope.namespace_id, ancestor)
        ancestor = None if found is None else found.parent_id


@bounded
async def get_entity(scope: Scope, entity_id: str) -> Entity | None:
    """The entity, if there is one."""
    return await scope.store.entities.read(scope.namespace_id, validate_identifier(entity_id))


@bounded
async def update_entity(
    scope: Scope,
    entity_id: str,
    name: str | None,
    metadata: Mapping[str, Any] | None,
    expected_version: int | None,
    principal: str | None,
) -> Entity:
    """Change name or metadata, if the entity is still at the expected version, or at any."""
    _check_update(name, metadata, expected_version)
    for _ in range(_MAX_ATTEMPTS):
        stored = await get_entity(scope, entity_id)
        if stored is None:
            raise EntityNotFoundError(entity_id)
        version = stored.version if expected_version is None else expected_version
        changed = await _update(scope, stored, name, metadata, version, principal)
        if changed is not None:
            return changed
        if expected_version is not None:
            break
    raise await _update_conflict(scope, entity_id, version)


async def _update(
    scope: Scope,
    stored: Entity,
    name: str | None,
    metadata: Mapping[str, Any] | None,
    version: int,
    principal: str | None,
) -> Entity | None:
    wanted = replace(
        stored,
        name=stored.name if name is None else name,
        metadata=stored.metadata if metadata is None else validate_metadata(metadata),
    )
    event = new_event(
        scope.io,
        AuditAction.ENTITY_UPDATED,
        stored.id,
        principal,
        name=wanted.name,
        metadata=wanted.metadata,
    )
    return await scope.store.entities.update(scope.namespace_id, wanted, version, event)


def _check_update(
    name: str | None, metadata: Mapping[str, Any] | None, expected_version: int | None
) -> None:
    if name is not None:
        validate_text("name", name)
    validate_metadata(metadata)
    if expected_version is not None and type(expected_version) is not int:
        raise ValidationError("expected_version", expected_version, "must be an integer")


async def _update_conflict(
    scope: Scope, entity_id: str, version: int
) -> EntityNotFoundError | EntityVersionError:
    now = await scope.store.entities.read(scope.namespace_id, entity_id)
    if now is None:
        return EntityNotFoundError(entity_id)
    return EntityVersionError(entity_id, version, now.version)


async def delete_entity(scope: Scope, entity_id: str, principal: str | None) -> int:
    """Delete the entity and all that is its own, and return how many records that were."""
    validate_identifier(entity_id)
    event = new_event(scope.io, AuditAction.ENTITY_DELETED, entity_id, principal)
    deleted = await scope.store.entities.delete(scope.namespace_id, entity_id, event)
    scope.local.config_cache.invalidate(entity_id)
    scope.local.refusals.delete(scope.namespace_id, entity_id)
    return deleted


async def get_children(scope: Scope, parent_id: str) -> list[Entity]:
    """Entities whose parent this is."""
    validate_identifier(parent_id, "parent_id")
    return await scope.store.entities.children(scope.namespace_id, parent_id)


@bounded
async def list_entities(
    scope: Scope, prefix: str, parent_id: str | None, limit: int, cursor: str | None
) -> tuple[list[Entity], str | None]:
    """Return one page of entities, sorted by id, and the cursor of the next page."""
    if prefix:
        validate_identifier(prefix, "prefix")
    if parent_id is not None:
        validate_identifier(parent_id, "parent_id")
    check_page_size(limit)
    if cursor is not None and not validate_identifier(cursor, "cursor").startswith(prefix):
        raise ValidationError("cursor", cursor, f"is not of a list of {prefix!r}")
    query = EntityQuery(prefix, parent_id)
    return await scope.store.entities.page(scope.namespace_id, query, limit, cursor)
