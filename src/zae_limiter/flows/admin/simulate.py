"""A manifest is tried on the usage that a store has recorded. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...core.hierarchy import ConfigSlot
from ...core.limit_simulation import configs_after
from ...core.manifest import Manifest
from ...core.models import LimiterConfig, UsageSnapshot
from ...core.validation import DEFAULT_RESOURCE
from ...ports.repository_protocol import UsageQuery
from ..scope import Scope
from .audit import MAX_PAGE
from .provision import export_manifest, plan_manifest

MAX_SNAPSHOTS = 200_000


async def limits_after(scope: Scope, manifest: Manifest) -> dict[ConfigSlot, LimiterConfig]:
    """Return the records that would decide on limits if the manifest were applied: those that it
    does not manage stay as they are."""
    stored = await export_manifest(scope, manifest.namespace)
    return configs_after(stored.configs, await plan_manifest(scope, manifest))


async def known_resources(scope: Scope, configs: Iterable[ConfigSlot]) -> list[str]:
    """Return the resources that have records of their own, stored or among these."""
    named = {slot.resource for slot in configs}
    named |= {*await scope.store.configs.resources_with_defaults(scope.namespace_id)}
    named |= {*await scope.store.configs.resources_with_entity_limits(scope.namespace_id)}
    return sorted(name for name in named if name not in (None, DEFAULT_RESOURCE))


async def recorded_usage(
    scope: Scope, resources: Iterable[str], query: UsageQuery
) -> tuple[list[UsageSnapshot], bool]:
    """Return the usage of all entities of these resources, and whether that is all: no more than
    200,000 windows are read."""
    found: list[UsageSnapshot] = []
    for resource in resources:
        cursor: str | None = None
        while True:
            asked = replace(query, resource=resource)
            page, cursor = await scope.store.usage.read(scope.namespace_id, asked, MAX_PAGE, cursor)
            found += page
            if len(found) >= MAX_SNAPSHOTS:
                return found[:MAX_SNAPSHOTS], False
            if cursor is None:
                break
    return found, True
