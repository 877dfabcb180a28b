"""A plan: the changes that make a store agree with a manifest.

A record that a manifest manages has a mark: what the manifest said of it when it was applied. By
its mark the plan tells three cases apart: the manifest has changed (the record is as marked), the
record was changed by somebody else (drift), and the record was never managed (also drift, if it
says something else than the manifest).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from .hierarchy import ConfigSlot
from .limit import Limit, LimitSet
from .manifest import DeclaredEntity, Manifest
from .models import Entity, LimiterConfig

PlannedAction = Literal["create", "update", "delete"]
_NOTHING = LimiterConfig()


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A change of one configuration record. `drift`: what somebody else did to the record, which
    the change undoes; empty if nothing."""

    slot: ConfigSlot
    action: PlannedAction
    stored: LimiterConfig | None
    declared: LimiterConfig | None
    drift: str = ""

    @property
    def mark(self) -> str | None:
        """The mark of the record after the change."""
        return None if self.declared is None else mark_of(self.declared)


@dataclass(frozen=True, slots=True)
class EntityChange:
    """A change of one entity's record."""

    action: PlannedAction
    declared: DeclaredEntity
    stored: Entity | None = None


@dataclass(frozen=True, slots=True)
class StoredState:
    """The records of a store that a manifest is compared with: those that it declares, and those
    that have a mark."""

    configs: Mapping[ConfigSlot, LimiterConfig] = field(default_factory=dict)
    marks: Mapping[ConfigSlot, str] = field(default_factory=dict)
    entities: Mapping[str, Entity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ManifestPlan:
    """The changes in the order in which they are made: entities before their children, then limits,
    then deletions.

    `marks`: marks to set or to remove where the record is as it should be. `conflicts`: reasons why
    the manifest cannot be applied at all.
    """

    entities: tuple[EntityChange, ...] = ()
    configs: tuple[ConfigChange, ...] = ()
    marks: Mapping[ConfigSlot, str | None] = field(default_factory=dict)
    conflicts: tuple[str, ...] = ()

    @property
    def changes(self) -> tuple[EntityChange | ConfigChange, ...]:
        """All changes, in order."""
        return (*self.entities, *self.configs)

    @property
    def drifted(self) -> tuple[ConfigChange, ...]:
        """The changes that undo what somebody else did."""
        return tuple(change for change in self.configs if change.drift)

    def count(self, action: PlannedAction) -> int:
        """Return how many changes have this action."""
        return sum(change.action == action for change in self.changes)


def slot_name(slot: ConfigSlot) -> str:
    """Return the name of a slot as a manifest writes its place."""
    if slot.entity_id is not None:
        return f"entities.{slot.entity_id}.resources.{slot.resource}"
    return "system" if slot.resource is None else f"resources.{slot.resource}"


def mark_of(declared: LimiterConfig) -> str:
    """Return the mark of a record: fingerprints of the fields that the manifest declares."""
    limits = "" if not declared.limits else LimitSet.of(declared.limits).fingerprint
    return f"{limits}{'+' if declared.inherit else ''}/{declared.on_unavailable or ''}"


def is_as_marked(stored: LimiterConfig | None, mark: str) -> bool:
    """Whether the fields of a record that a mark tells of are as the mark says."""
    limits, _, action = mark.partition("/")
    found = stored or _NOTHING
    if action and found.on_unavailable != action:
        return False
    now = mark_of(LimiterConfig(found.limits or None, inherit=found.inherit))
    return not limits or now == f"{limits}/"


def make_plan(manifest: Manifest, stored: StoredState) -> ManifestPlan:
    """Compare a manifest with a store."""
    configs: list[ConfigChange] = []
    marks: dict[ConfigSlot, str | None] = {}
    for slot, declared in sorted(manifest.configs.items(), key=_order):
        record, mark = stored.configs.get(slot), stored.marks.get(slot)
        if declared.limits is None and mark is not None and mark.partition("/")[0]:
            # The manifest declared limits here before.
            declared = replace(declared, limits=())
        if _differs(declared, record):
            configs.append(_setting(slot, declared, record, mark))
        elif mark != mark_of(declared):
            marks[slot] = mark_of(declared)
    for slot in sorted(stored.marks.keys() - manifest.configs.keys(), key=str):
        record, mark = stored.configs.get(slot), stored.marks[slot]
        if record is not None and record.limits:
            drift = "" if is_as_marked(record, mark) else "changed by somebody else"
            configs.append(ConfigChange(slot, "delete", record, None, drift))
        else:
            marks[slot] = None
    changes = tuple(_entity_changes(manifest, stored.entities))
    conflicts = tuple(_conflicts(manifest, stored.entities))
    return ManifestPlan(changes, tuple(configs), marks, conflicts)


def _order(item: tuple[ConfigSlot, LimiterConfig]) -> tuple[str, str]:
    slot = item[0]
    return slot.entity_id or "", slot.resource or ""


def _setting(
    slot: ConfigSlot, declared: LimiterConfig, record: LimiterConfig | None, mark: str | None
) -> ConfigChange:
    is_new = record is None or not _overlaps(declared, record)
    action: PlannedAction = "create" if is_new else "update"
    drift = ""
    if mark is None:
        drift = "" if is_new else "set by somebody else"
    elif not is_as_marked(record, mark):
        drift = "deleted by somebody else" if is_new else "changed by somebody else"
    return ConfigChange(slot, action, record, declared, drift)


def _overlaps(declared: LimiterConfig, record: LimiterConfig) -> bool:
    """Whether the record holds any of the fields that are declared."""
    has_limits = declared.limits is not None and bool(record.limits)
    return has_limits or (declared.on_unavailable is not None and record.on_unavailable is not None)


def _differs(declared: LimiterConfig, record: LimiterConfig | None) -> bool:
    found = record or _NOTHING
    if declared.on_unavailable not in (None, found.on_unavailable):
        return True
    if declared.limits is None:
        return False
    kept = _by_name(declared.limits) == _by_name(found.limits) and declared.inherit == found.inherit
    return not kept


def _by_name(limits: tuple[Limit, ...] | None) -> dict[str, Limit]:
    return {limit.name: limit for limit in limits or ()}


def _entity_changes(manifest: Manifest, stored: Mapping[str, Entity]) -> Iterator[EntityChange]:
    for declared in _parents_first(manifest.entities):
        entity = stored.get(declared.id)
        if entity is None:
            yield EntityChange("create", declared)
        elif declared.name not in (None, entity.name) or (
            declared.metadata is not None and dict(declared.metadata) != entity.metadata
        ):
            yield EntityChange("update", declared, entity)


def _parents_first(entities: Mapping[str, DeclaredEntity]) -> list[DeclaredEntity]:
    def depth(entity: DeclaredEntity) -> int:
        above = entities.get(entity.parent_id or "")
        return 0 if above is None else depth(above) + 1

    return sorted(entities.values(), key=lambda entity: (depth(entity), entity.id))


def _conflicts(manifest: Manifest, stored: Mapping[str, Entity]) -> Iterator[str]:
    for entity_id, declared in sorted(manifest.entities.items()):
        entity = stored.get(entity_id)
        if entity is None:
            continue
        for field_name, was, now in (
            ("parent", entity.parent_id, declared.parent_id),
            ("cascade", entity.cascade, declared.cascade),
        ):
            if now not in (None, was):
                yield (
                    f"entities.{entity_id}.{field_name}: the entity is stored with {was!r}, not"
                    f" {now!r}; only a new entity can have another"
                )
