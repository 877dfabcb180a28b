"""A plan: the changes that make a store agree with a manifest.

A record that a manifest manages has a mark: what the manifest said of it when it was applied. By
its mark the plan tells three cases apart: the manifest has changed (the record is as marked), the
record was changed by somebody else (drift), and the record was never managed (also drift, if it
says something else than the manifest).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .hierarchy import ConfigSlot
from .limit import Limit, LimitSet
from .manifest import Manifest
from .manifest_entities import (
    EntityChange,
    PlannedAction,
    entity_conflicts,
    entity_mark,
    entity_mark_slot,
    is_entity_mark_slot,
    parents_first,
    plan_entity,
)
from .models import Entity, LimiterConfig

MarkChanges = dict[ConfigSlot, str | None]
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

    @property
    def path(self) -> str:
        """The name of the record as a manifest writes its place."""
        return slot_name(self.slot)


@dataclass(frozen=True, slots=True)
class StoredState:
    """The records of a store that a manifest is compared with: those that it declares, those that
    have a mark, and the ancestors of declared entities."""

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
    def drifted(self) -> tuple[EntityChange | ConfigChange, ...]:
        """The changes that undo what somebody else did."""
        return tuple(change for change in self.changes if change.drift)

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
    entities, entity_marks = _plan_entities(manifest, stored)
    settings, setting_marks = _plan_settings(manifest, stored)
    deletions, deletion_marks = _plan_deletions(manifest, stored)
    conflicts = tuple(entity_conflicts(manifest.entities, stored.entities))
    marks = entity_marks | setting_marks | deletion_marks
    return ManifestPlan(tuple(entities), (*settings, *deletions), marks, conflicts)


def _plan_entities(
    manifest: Manifest, stored: StoredState
) -> tuple[list[EntityChange], MarkChanges]:
    changes: list[EntityChange] = []
    marks: MarkChanges = {}
    for declared in parents_first(manifest.entities):
        slot = entity_mark_slot(declared.id)
        mark = stored.marks.get(slot)
        change = plan_entity(declared, stored.entities.get(declared.id), mark)
        if change is not None:
            changes.append(change)
        elif mark != entity_mark(declared):
            marks[slot] = entity_mark(declared)
    return changes, marks


def _plan_settings(
    manifest: Manifest, stored: StoredState
) -> tuple[list[ConfigChange], MarkChanges]:
    changes: list[ConfigChange] = []
    marks: MarkChanges = {}
    for slot, declared in sorted(manifest.configs.items(), key=_order):
        record, mark = stored.configs.get(slot), stored.marks.get(slot)
        if declared.limits is None and mark is not None and mark.partition("/")[0]:
            # The manifest declared limits here before.
            declared = replace(declared, limits=())
        if _differs(declared, record):
            changes.append(_setting(slot, declared, record, mark))
        elif mark != mark_of(declared):
            marks[slot] = mark_of(declared)
    return changes, marks


def _plan_deletions(
    manifest: Manifest, stored: StoredState
) -> tuple[list[ConfigChange], MarkChanges]:
    """Delete what a manifest declared before, but for entities, which are only forgotten."""
    changes: list[ConfigChange] = []
    marks: MarkChanges = {}
    for slot in sorted(stored.marks.keys() - manifest.configs.keys(), key=str):
        record, mark = stored.configs.get(slot), stored.marks[slot]
        if is_entity_mark_slot(slot):
            if slot.entity_id not in manifest.entities:
                marks[slot] = None
        elif record is not None and record.limits:
            drift = "" if is_as_marked(record, mark) else "changed by somebody else"
            changes.append(ConfigChange(slot, "delete", record, None, drift))
        else:
            marks[slot] = None
    return changes, marks


def forget_drifted(plan: ManifestPlan) -> ManifestPlan:
    """Return the plan without its deletions of records that somebody else has changed: those
    records stay, and are managed no longer."""
    kept = tuple(c for c in plan.configs if c.action != "delete" or not c.drift)
    left = {change.slot: None for change in plan.configs if change not in kept}
    return replace(plan, configs=kept, marks={**plan.marks, **left})


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
