"""Declared limits: a manifest is compared with a store, applied to it, and written from it.

Each record changes in one transaction with its mark and its audit event, under the condition that
it is as the plan has seen it. So an apply that is killed leaves every record either old or new, and
the next apply makes the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...core.exceptions import EntityNotFoundError, EntityVersionError, ManifestConflictError
from ...core.hierarchy import MAX_LEVELS, SYSTEM_SLOT, ConfigSlot
from ...core.manifest import DeclaredEntity, Manifest
from ...core.manifest_entities import (
    EntityChange,
    entity_mark,
    entity_mark_slot,
    is_as_declared,
    is_entity_mark_slot,
)
from ...core.manifest_plan import ConfigChange, ManifestPlan, StoredState, make_plan
from ...core.models import Entity, LimiterConfig
from ...ports.repository_protocol import Declaration, EntityQuery
from ..scope import Scope
from .audit import MAX_PAGE
from .entities import create_entity, get_entity, update_entity
from .limits import delete_config, get_config, set_config

ApplyProgress = Callable[[int, int], None]

_SLOTS_PER_READ = 100
# Each failed attempt means that somebody else has changed the record once more.
_MAX_ATTEMPTS = 16


@dataclass(frozen=True, slots=True)
class AppliedCounts:
    """The number of records that an apply has created, updated and deleted. `adopted`: records that
    were as declared already, and are managed from now on."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    adopted: int = 0


async def plan_manifest(scope: Scope, manifest: Manifest) -> ManifestPlan:
    """Compare a manifest with the store. Nothing is changed."""
    marks = await scope.store.configs.marks(scope.namespace_id)
    marked = [slot for slot in marks if not is_entity_mark_slot(slot)]
    slots = [*manifest.configs, *(slot for slot in marked if slot not in manifest.configs)]
    configs = await _read_configs(scope, slots)
    return make_plan(manifest, StoredState(configs, marks, await _read_entities(scope, manifest)))


async def _read_entities(scope: Scope, manifest: Manifest) -> dict[str, Entity]:
    """Read the declared entities and their ancestors."""
    found: dict[str, Entity] = {}
    asked: set[str] = set()
    parents = {each.parent_id for each in manifest.entities.values() if each.parent_id}
    wanted = parents | manifest.entities.keys()
    for _ in range(MAX_LEVELS + 1):
        if not wanted:
            break
        page = await scope.store.entities.read_several(scope.namespace_id, sorted(wanted))
        found |= page
        asked |= wanted
        wanted = {each.parent_id for each in page.values() if each.parent_id} - asked
    return found


async def _read_configs(
    scope: Scope, slots: Sequence[ConfigSlot]
) -> dict[ConfigSlot, LimiterConfig]:
    found: dict[ConfigSlot, LimiterConfig] = {}
    for start in range(0, len(slots), _SLOTS_PER_READ):
        some = slots[start : start + _SLOTS_PER_READ]
        found |= (await scope.store.configs.read(scope.namespace_id, some)).configs
    return found


async def apply_plan(
    scope: Scope,
    plan: ManifestPlan,
    principal: str | None,
    *,
    force: bool = False,
    progress: ApplyProgress | None = None,
) -> AppliedCounts:
    """Make the changes of a plan, one record after the other.

    Raises `ManifestConflictError` before anything is changed if the manifest cannot be applied, or
    if somebody else has changed records and `force` does not say to undo that. `progress` is told
    how many steps are done, and of how many.
    """
    _refuse_conflicts(plan, force=force)
    steps = len(plan.changes) + len(plan.marks)
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, steps)

    for entity_change in plan.entities:
        await _make_entity(scope, entity_change, principal, force=force)
        advance()
    for change in plan.configs:
        await _make_config(scope, change, principal, force=force)
        advance()
    for slot, mark in plan.marks.items():
        await scope.store.configs.mark(scope.namespace_id, slot, mark)
        advance()
    return AppliedCounts(
        plan.count("create"),
        plan.count("update"),
        plan.count("delete"),
        sum(mark is not None for mark in plan.marks.values()),
    )


def _refuse_conflicts(plan: ManifestPlan, *, force: bool) -> None:
    if plan.conflicts:
        raise ManifestConflictError(plan.conflicts)
    if plan.drifted and not force:
        found = [f"{change.path}: was {change.drift}" for change in plan.drifted]
        raise ManifestConflictError(found, can_force=True)


async def _make_entity(
    scope: Scope, change: EntityChange, principal: str | None, *, force: bool
) -> None:
    declared, stored = change.declared, change.stored
    if stored is None:
        stored = await create_entity(scope, _new_entity(declared), principal, exist_ok=True)
        if not force and not is_as_declared(declared, stored):
            raise _meanwhile(change)
    if not is_as_declared(declared, stored):
        await _update_entity(scope, change, None if force else stored.version, principal)
    # A kill before this is harmless: the next plan finds the entity as declared, and marks it.
    mark = entity_mark(declared)
    if mark is not None:
        await scope.store.configs.mark(scope.namespace_id, entity_mark_slot(declared.id), mark)


async def _update_entity(
    scope: Scope, change: EntityChange, version: int | None, principal: str | None
) -> None:
    declared = change.declared
    metadata = None if declared.metadata is None else dict(declared.metadata)
    try:
        await update_entity(scope, declared.id, declared.name, metadata, version, principal)
    except (EntityNotFoundError, EntityVersionError):
        # Another apply of the same manifest may have been faster.
        found = await get_entity(scope, declared.id)
        if found is None or not is_as_declared(declared, found):
            raise _meanwhile(change) from None


def _meanwhile(change: EntityChange | ConfigChange) -> ManifestConflictError:
    reason = f"{change.path}: was changed by somebody else meanwhile"
    return ManifestConflictError([reason], can_force=True)


def _new_entity(declared: DeclaredEntity) -> Entity:
    return Entity(
        declared.id,
        declared.name,
        declared.parent_id,
        bool(declared.cascade),
        dict(declared.metadata or {}),
    )


async def _make_config(
    scope: Scope, change: ConfigChange, principal: str | None, *, force: bool
) -> None:
    seen = change.stored
    for _ in range(_MAX_ATTEMPTS):
        if await _declare(scope, change, seen, principal):
            return
        seen = await get_config(scope, change.slot)
        if _is_done(change, seen):
            await scope.store.configs.mark(scope.namespace_id, change.slot, change.mark)
            return
        if not force:
            break
    raise _meanwhile(change)


async def _declare(
    scope: Scope, change: ConfigChange, seen: LimiterConfig | None, principal: str | None
) -> bool:
    declaration = Declaration(seen, change.mark)
    if change.declared is not None:
        return await set_config(scope, change.slot, change.declared, principal, declaration)
    if change.slot == SYSTEM_SLOT:
        # The record has settings that no manifest declares.
        return await set_config(scope, change.slot, LimiterConfig(()), principal, declaration)
    return await delete_config(scope, change.slot, principal, declaration)


def _is_done(change: ConfigChange, stored: LimiterConfig | None) -> bool:
    if change.declared is None:
        return stored is None or not stored.limits
    state = StoredState({} if stored is None else {change.slot: stored})
    return not make_plan(Manifest("", {change.slot: change.declared}), state).configs


async def export_manifest(scope: Scope, namespace: str) -> Manifest:
    """Return a manifest of all that is stored, whoever set it."""
    configs = scope.store.configs
    slots = [SYSTEM_SLOT]
    shared = await configs.resources_with_defaults(scope.namespace_id)
    slots += [ConfigSlot(resource=resource) for resource in shared]
    for resource in await configs.resources_with_entity_limits(scope.namespace_id):
        ids, _ = await configs.entities_with_limits(scope.namespace_id, resource, None, None)
        slots += [ConfigSlot(entity_id, resource) for entity_id in ids]
    stored = await _read_configs(scope, slots)
    entities = {entity.id: _declared(entity) for entity in await _all_entities(scope)}
    return Manifest(namespace, _declarable(stored), entities)


def _declarable(
    stored: dict[ConfigSlot, LimiterConfig],
) -> dict[ConfigSlot, LimiterConfig]:
    """Return the fields that a manifest can declare, of the records that have any."""
    found = {}
    for slot, config in stored.items():
        kept = LimiterConfig(config.limits or None, config.on_unavailable, inherit=config.inherit)
        if kept != LimiterConfig():
            found[slot] = kept
    return found


async def _all_entities(scope: Scope) -> Iterable[Entity]:
    found: list[Entity] = []
    cursor: str | None = None
    while True:
        page, cursor = await scope.store.entities.page(
            scope.namespace_id, EntityQuery(), MAX_PAGE, cursor
        )
        found += page
        if cursor is None:
            return found


def _declared(entity: Entity) -> DeclaredEntity:
    """Return an entity as a manifest declares it. A name that is the id need not be said."""
    return DeclaredEntity(
        entity.id,
        None if entity.name == entity.id else entity.name,
        entity.parent_id,
        entity.cascade,
        entity.metadata or None,
    )
