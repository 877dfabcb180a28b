"""This module shows what a plan would change."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from ..core.limit import Limit
from ..core.manifest import limit_shorthand
from ..core.manifest_entities import EntityChange
from ..core.manifest_plan import ConfigChange, ManifestPlan
from ..core.models import LimiterConfig

_SIGNS = {"create": "+", "update": "~", "delete": "-"}


def plan_to_dict(namespace: str, plan: ManifestPlan) -> dict[str, Any]:
    """Return a plan, JSON-ready."""
    return {
        "namespace": namespace,
        "create": plan.count("create"),
        "update": plan.count("update"),
        "delete": plan.count("delete"),
        "adopt": _adopted(plan),
        "conflicts": list(plan.conflicts),
        "changes": [_to_dict(change) for change in plan.changes],
    }


def _adopted(plan: ManifestPlan) -> int:
    return sum(mark is not None for mark in plan.marks.values())


def _to_dict(change: EntityChange | ConfigChange) -> dict[str, Any]:
    return {
        "action": change.action,
        "kind": "entity" if isinstance(change, EntityChange) else "limits",
        "path": change.path,
        "fields": {name: {"before": was, "after": now} for name, was, now in _fields(change)},
        "drift": change.drift or None,
    }


def plan_summary(namespace: str, plan: ManifestPlan) -> str:
    """Return one sentence about a plan."""
    adopted = f", {_adopted(plan)} to adopt as they are" if _adopted(plan) else ""
    if not plan.changes:
        return f"No changes for namespace '{namespace}'{adopted}"
    counts = ", ".join(f"{plan.count(each)} to {each}" for each in ("create", "update", "delete"))
    return f"Namespace '{namespace}': {counts}{adopted}"


def plan_lines(plan: ManifestPlan) -> Iterator[str]:
    """Yield the changes as text, one line for each record and for each of its fields."""
    for change in plan.changes:
        drift = f"  (was {change.drift})" if change.drift else ""
        yield f"{_SIGNS[change.action]} {change.path}{drift}"
        yield from _field_lines(_fields(change))
    for conflict in plan.conflicts:
        yield f"! {conflict}"


def _field_lines(fields: Iterable[tuple[str, Any, Any]]) -> Iterator[str]:
    for name, was, now in fields:
        if was is None:
            yield f"    + {name}: {_shown(now)}"
        elif now is None:
            yield f"    - {name}: {_shown(was)}"
        else:
            yield f"    ~ {name}: {_shown(was)} -> {_shown(now)}"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _fields(change: EntityChange | ConfigChange) -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields of a record that change: name, stored and declared value."""
    return _entity_fields(change) if isinstance(change, EntityChange) else _settings(change)


def _entity_fields(change: EntityChange) -> Iterator[tuple[str, Any, Any]]:
    declared, stored = change.declared, change.stored
    pairs = [
        ("name", declared.name, stored and stored.name),
        ("parent", declared.parent_id, stored and stored.parent_id),
        ("cascade", declared.cascade, stored and stored.cascade),
        ("metadata", declared.metadata and dict(declared.metadata), stored and stored.metadata),
    ]
    yield from ((name, was, now) for name, now, was in pairs if now is not None and now != was)


def _settings(change: ConfigChange) -> Iterator[tuple[str, Any, Any]]:
    before, after = change.stored or LimiterConfig(), change.declared or LimiterConfig(())
    if after.on_unavailable not in (None, before.on_unavailable):
        yield "on_unavailable", before.on_unavailable, after.on_unavailable
    if after.limits is None:
        return
    if before.inherit != after.inherit:
        yield "inherit", before.inherit if before.limits else None, after.inherit
    stored, declared = _rates(before.limits), _rates(after.limits)
    for name in sorted(stored.keys() | declared.keys()):
        if stored.get(name) != declared.get(name):
            yield name, stored.get(name), declared.get(name)


def _rates(limits: Iterable[Limit] | None) -> dict[str, str]:
    return {limit.name: limit_shorthand(limit) for limit in limits or ()}
