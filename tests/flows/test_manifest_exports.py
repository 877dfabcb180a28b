"""Whatever is stored, a manifest of it plans to nothing, and makes another namespace alike."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from zae_limiter import Limit, SyncRepository
from zae_limiter.core.manifest import Manifest
from zae_limiter.flows.admin.provision import apply_plan, export_manifest, plan_manifest
from zae_limiter.manifest_file import dump_manifest, parse_manifest
from zae_limiter.runtime.blocking import run

# In the order in which each may be the parent of those after it.
IDS = ["a", "b", "no", "12", "2024-01-01", "k:1@x", "1e3"]
RESOURCES = ["gpt-4", "a/b:c", "null"]
_LIMITS = st.lists(
    st.builds(
        Limit,
        st.sampled_from(["rpm", "tpm", "on"]),
        st.integers(1, 10**15),
        st.integers(1, 10**15),
        st.integers(1, 10**9) | st.sampled_from([60, 3600, 86_400]),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda limit: limit.name,
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=3,
)
_METADATA = st.dictionaries(st.text(max_size=4), _VALUES, max_size=2)
_ENTITIES = st.lists(
    st.tuples(
        st.sampled_from(IDS),
        st.none() | st.sampled_from(IDS),
        st.booleans(),
        st.none() | st.text(max_size=8),
        _METADATA,
    ),
    max_size=4,
    unique_by=lambda entity: entity[0],
)
_OWN = st.dictionaries(
    st.tuples(st.sampled_from(IDS), st.sampled_from(["_default_", *RESOURCES])),
    st.tuples(_LIMITS, st.booleans()),
    max_size=4,
)


def store(repository: SyncRepository, entities: Any, own: Any, shared: Any) -> None:
    for entity_id, parent_id, cascade, name, metadata in entities:
        is_below = parent_id is not None and IDS.index(parent_id) < IDS.index(entity_id)
        parent = parent_id if is_below else None
        repository.create_entity(entity_id, name, parent, cascade, metadata)
    for (entity_id, resource), (limits, inherit) in own.items():
        repository.set_limits(entity_id, limits, resource, inherit=inherit)
    for resource, limits in shared.items():
        repository.set_resource_defaults(resource, limits)


@settings(deadline=None, max_examples=60)
@given(
    _ENTITIES,
    _OWN,
    st.dictionaries(st.sampled_from(RESOURCES), _LIMITS, max_size=2),
    st.none() | st.tuples(_LIMITS, st.sampled_from([None, "allow", "block"])),
)
def test_an_export_plans_to_nothing_and_makes_another_namespace_alike(
    entities: Any, own: Any, shared: Any, system: Any
) -> None:
    with SyncRepository.open(url="memory://") as repository:
        store(repository, entities, own, shared)
        if system is not None:
            repository.set_system_defaults(*system)
        exported = parse_manifest(dump_manifest(export(repository)))
        plan = run(plan_manifest(repository.scope, exported))
        assert not plan.changes
        assert not plan.conflicts

        repository.register_namespace("other")
        other = repository.namespace("other")
        run(apply_plan(other.scope, run(plan_manifest(other.scope, exported)), None))
        assert export(other) == exported
        again = run(plan_manifest(other.scope, exported))
        assert (again.changes, again.marks) == ((), {})


def export(repository: SyncRepository) -> Manifest:
    return run(export_manifest(repository.scope, "default"))
