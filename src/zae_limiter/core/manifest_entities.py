"""Declared entities compared with stored ones.

A manifest may change the name and the metadata of an entity. Parent and cascade are fixed when the
entity is made: another value is a conflict. The mark of an entity tells the name and the metadata
that the manifest declared when it was applied, as the mark of a configuration record does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .hierarchy import MAX_LEVELS, ConfigSlot
from .manifest import DeclaredEntity
from .models import Entity

PlannedAction = Literal["create", "update", "delete"]
StoredEntities = Mapping[str, Entity]


@dataclass(frozen=True, slots=True)
class EntityChange:
    """A change of one entity's record. `drift`: the change that somebody else made to the record,
    which this change undoes; empty if none."""

    action: PlannedAction
    declared: DeclaredEntity
    stored: Entity | None = None
    drift: str = ""

    @property
    def path(self) -> str:
        """The name of the entity as a manifest writes its place."""
        return f"entities.{self.declared.id}"


def entity_mark_slot(entity_id: str) -> ConfigSlot:
    """Return the slot of an entity's mark. No configuration record has it."""
    return ConfigSlot(entity_id)


def is_entity_mark_slot(slot: ConfigSlot) -> bool:
    """Whether a mark of this slot is an entity's."""
    return slot.entity_id is not None and slot.resource is None


def entity_mark(declared: DeclaredEntity) -> str | None:
    """Return the mark of an entity: fingerprints of the fields that are declared and may change."""
    if declared.name is None and declared.metadata is None:
        return None
    return f"{_fingerprint(declared.name)}/{_fingerprint(declared.metadata)}"


def is_as_declared(declared: DeclaredEntity, stored: Entity) -> bool:
    """Whether the fields that may change are as declared."""
    return not list(_differences(declared, stored))


def plan_entity(
    declared: DeclaredEntity, stored: Entity | None, mark: str | None
) -> EntityChange | None:
    """Return the change that makes an entity as declared; None if it is so already."""
    if stored is None:
        return EntityChange("create", declared, None, "deleted by somebody else" if mark else "")
    if is_as_declared(declared, stored):
        return None
    return EntityChange("update", declared, stored, _drift(declared, stored, mark))


def _drift(declared: DeclaredEntity, stored: Entity, mark: str | None) -> str:
    marks = dict(zip(("name", "metadata"), (mark or "/").split("/"), strict=True))
    for field in _differences(declared, stored):
        now = getattr(stored, field)
        if not marks[field]:
            if now != {"name": stored.id, "metadata": {}}[field]:
                return "set by somebody else"
        elif _fingerprint(now) != marks[field]:
            return "changed by somebody else"
    return ""


def _differences(declared: DeclaredEntity, stored: Entity) -> Iterator[str]:
    if declared.name not in (None, stored.name):
        yield "name"
    if declared.metadata is not None and dict(declared.metadata) != stored.metadata:
        yield "metadata"


def _fingerprint(value: Any) -> str:
    """Return a hash of a JSON value; 1.0 and 1 are alike, because a store may keep one for the
    other."""
    if value is None:
        return ""
    plain = json.loads(json.dumps(value), parse_float=_number)
    text = json.dumps(plain, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() else value


def parents_first(entities: Mapping[str, DeclaredEntity]) -> list[DeclaredEntity]:
    """Return the entities in an order in which each comes after its parent."""

    def depth(entity: DeclaredEntity) -> int:
        above = entities.get(entity.parent_id or "")
        return 0 if above is None else depth(above) + 1

    return sorted(entities.values(), key=lambda entity: (depth(entity), entity.id))


def entity_conflicts(
    declared: Mapping[str, DeclaredEntity], stored: StoredEntities
) -> Iterator[str]:
    """Yield the reasons why entities cannot become as declared. `stored` must hold the ancestors of
    all declared entities, as far as they are stored."""
    for entity_id, entity in sorted(declared.items()):
        found = stored.get(entity_id)
        if found is None:
            yield from _chain_conflicts(entity, declared, stored)
        else:
            yield from _fixed_conflicts(entity, found)


def _fixed_conflicts(declared: DeclaredEntity, stored: Entity) -> Iterator[str]:
    for field, was, now in (
        ("parent", stored.parent_id, declared.parent_id),
        ("cascade", stored.cascade, declared.cascade),
    ):
        if now not in (None, was):
            yield (
                f"entities.{declared.id}.{field}: the entity is stored with {was!r}, not"
                f" {now!r}; only a new entity can have another"
            )


def _chain_conflicts(
    entity: DeclaredEntity, declared: Mapping[str, DeclaredEntity], stored: StoredEntities
) -> Iterator[str]:
    """Refuse a new entity whose stored ancestors lead back to it, or are too many: creating it
    would fail after other records have been changed."""
    path, ancestor = [entity.id], entity.parent_id
    while ancestor is not None:
        if ancestor in path:
            chain = " > ".join([*path, ancestor])
            yield f"entities.{entity.id}.parent: would form a cycle: {chain}"
            return
        if len(path) == MAX_LEVELS:
            yield f"entities.{entity.id}.parent: would nest deeper than {MAX_LEVELS} levels"
            return
        path.append(ancestor)
        above = stored.get(ancestor) or declared.get(ancestor)
        ancestor = None if above is None else above.parent_id
