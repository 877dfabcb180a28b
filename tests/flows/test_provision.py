"""Manifests are applied to every store, one record after the other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.drivers import ADMIN_DRIVERS, Driver, StoreKind
from zae_limiter import (
    AuditAction,
    EntityExistsError,
    Limit,
    LimiterConfig,
    ManifestConflictError,
    Repository,
)
from zae_limiter.core.hierarchy import SYSTEM_SLOT, ConfigSlot
from zae_limiter.core.manifest import Manifest
from zae_limiter.flows.admin.provision import (
    AppliedCounts,
    apply_plan,
    export_manifest,
    plan_manifest,
)
from zae_limiter.manifest_file import parse_manifest
from zae_limiter.runtime.asyncio_driver import drive

RPM = Limit.per_minute("rpm", 10)
TEXT = """
namespace: default
system: {on_unavailable: allow, limits: {rpm: 60}}
resources:
  gpt-4: {limits: {rpm: 500, tpm: 40000/min; burst 50000}}
entities:
  acme: {name: Acme, metadata: {tier: gold}}
  key-1:
    parent: acme
    cascade: true
    limits: {rpm: 5}
    inherit: true
    resources: {gpt-4: {inherit: true, limits: {rpm: 7}}}
"""


@pytest.fixture
def driver(store_kind: StoreKind) -> Driver:
    return ADMIN_DRIVERS[store_kind]


async def apply(repository: Repository, manifest: Manifest | str, **options: Any) -> AppliedCounts:
    scope = repository.scope
    declared = parse_manifest(manifest) if isinstance(manifest, str) else manifest
    plan = await drive(plan_manifest(scope, declared))
    return await drive(apply_plan(scope, plan, "alice", **options))


async def test_a_manifest_is_applied_once_and_then_plans_to_nothing(
    repository: Repository,
) -> None:
    steps: list[tuple[int, int]] = []
    applied = await apply(repository, TEXT, progress=lambda *step: steps.append(step))
    assert applied == AppliedCounts(created=6)
    assert steps == [(n, 6) for n in range(1, 7)]
    assert await apply(repository, TEXT) == AppliedCounts()
    limits, action = await repository.get_system_defaults()
    assert ([limit.capacity for limit in limits], action) == ([60], "allow")
    found = await repository.get_entity("key-1")
    assert found is not None
    assert (found.parent_id, found.cascade) == ("acme", True)
    resolved, _, _ = await repository.resolve_limits("key-1", "gpt-4")
    assert {limit.name: limit.capacity for limit in resolved or ()} == {
        "rpm": 7,
        "tpm": 50_000,
    }
    for subject in ("$SYSTEM", "$RESOURCE:gpt-4", "acme", "key-1"):
        events = await repository.get_audit_events(subject)
        assert {event.principal for event in events} == {"alice"}


async def test_only_records_that_a_manifest_made_are_deleted(repository: Repository) -> None:
    await repository.set_limits("by-hand", [RPM])
    await repository.set_config("system", LimiterConfig(strict_version=True))
    await apply(repository, TEXT)
    assert await apply(repository, "namespace: default") == AppliedCounts(deleted=4)
    assert await repository.get_limits("by-hand") == [RPM]
    assert await repository.get_limits("key-1", "gpt-4") == []
    assert await repository.list_resources_with_defaults() == []
    system = await repository.get_config("system")
    assert system == LimiterConfig(on_unavailable="allow", strict_version=True)
    assert await repository.get_entity("key-1") is not None
    events = await repository.get_audit_events("key-1")
    assert [event.action for event in events[:2]] == [AuditAction.LIMITS_DELETED] * 2
    assert await apply(repository, "namespace: default") == AppliedCounts()


async def test_records_that_others_changed_stop_an_apply_before_it_changes_anything(
    repository: Repository,
) -> None:
    await apply(repository, TEXT)
    await repository.set_limits("key-1", [RPM])
    await repository.delete_resource_defaults("gpt-4")
    longer = TEXT + "  key-2: {limits: {rpm: 1}}\n"
    with pytest.raises(ManifestConflictError) as refused:
        await apply(repository, longer)
    assert refused.value.can_force
    assert refused.value.conflicts == (
        "resources.gpt-4: was deleted by somebody else",
        "entities.key-1.resources._default_: was changed by somebody else",
    )
    assert await repository.get_limits("key-2") == []
    assert await apply(repository, longer, force=True) == AppliedCounts(created=2, updated=1)
    assert await apply(repository, longer) == AppliedCounts()


async def test_records_that_were_set_by_hand_are_adopted_if_they_are_as_declared(
    repository: Repository,
) -> None:
    await repository.set_resource_defaults("gpt-4", [RPM])
    text = "namespace: default\nresources: {gpt-4: {limits: {rpm: 10}}}"
    version = await repository.get_config("resource", "gpt-4")
    assert await apply(repository, text) == AppliedCounts(adopted=1)
    after = await repository.get_config("resource", "gpt-4")
    assert (version and version.config_version) == (after and after.config_version)
    await repository.set_resource_defaults("gpt-3", [RPM])
    both = text.replace("{gpt-4", "{gpt-3: {limits: {rpm: 9}}, gpt-4")
    with pytest.raises(ManifestConflictError, match=r"resources\.gpt-3: was set by somebody else"):
        await apply(repository, both)
    assert await apply(repository, "namespace: default") == AppliedCounts(deleted=1)


async def test_a_record_that_changes_after_the_plan_is_not_overwritten(
    repository: Repository,
) -> None:
    scope = repository.scope
    manifest = parse_manifest(TEXT)
    plan = await drive(plan_manifest(scope, manifest))
    await repository.set_limits("key-1", [RPM], "gpt-4")
    with pytest.raises(ManifestConflictError, match="changed by somebody else meanwhile"):
        await drive(apply_plan(scope, plan, None))
    assert await repository.get_limits("key-1", "gpt-4") == [RPM]
    forced = await drive(apply_plan(scope, plan, None, force=True))
    assert forced.created == 6
    assert not (await drive(plan_manifest(scope, manifest))).changes


async def test_an_entity_that_is_stored_with_another_parent_is_a_conflict(
    repository: Repository,
) -> None:
    await repository.create_entity("key-1", parent_id="other", cascade=True)
    with pytest.raises(ManifestConflictError, match=r"entities\.key-1\.parent") as refused:
        await apply(repository, TEXT, force=True)
    assert not refused.value.can_force
    assert await repository.list_resources_with_defaults() == []
    scope = repository.scope
    plan = await drive(plan_manifest(scope, parse_manifest(TEXT.replace("key-1", "key-2"))))
    await repository.create_entity("key-2", parent_id="other", cascade=True)
    with pytest.raises(EntityExistsError):
        await drive(apply_plan(scope, plan, None))


async def test_an_entity_that_others_renamed_stops_an_apply_before_it_changes_anything(
    repository: Repository,
) -> None:
    await apply(repository, TEXT)
    await repository.update_entity("acme", name="Ours")
    changed = TEXT.replace("rpm: 60", "rpm: 61")
    with pytest.raises(
        ManifestConflictError, match=r"entities\.acme: was changed by somebody else"
    ):
        await apply(repository, changed)
    limits, _ = await repository.get_system_defaults()
    assert [limit.capacity for limit in limits] == [60]
    assert await apply(repository, changed, force=True) == AppliedCounts(updated=2)
    assert await apply(repository, changed) == AppliedCounts()
    renamed = changed.replace("name: Acme", "name: Acme Inc.")
    assert await apply(repository, renamed) == AppliedCounts(updated=1)


async def test_an_entity_that_changes_after_the_plan_is_not_overwritten(
    repository: Repository,
) -> None:
    scope = repository.scope
    new = await drive(plan_manifest(scope, parse_manifest(TEXT)))
    await repository.create_entity("acme", name="Ours", metadata={"tier": "gold"})
    with pytest.raises(ManifestConflictError, match=r"entities\.acme: was changed .* meanwhile"):
        await drive(apply_plan(scope, new, None))
    await drive(apply_plan(scope, new, None, force=True))
    renamed = parse_manifest(TEXT.replace("name: Acme", "name: B"))
    plans = [await drive(plan_manifest(scope, renamed)) for _ in range(3)]
    assert (await drive(apply_plan(scope, plans[0], None))).updated == 1
    # Another apply of the same manifest finds its work done.
    assert (await drive(apply_plan(scope, plans[1], None))).updated == 1
    await repository.update_entity("acme", name="C")
    with pytest.raises(ManifestConflictError, match=r"entities\.acme: was changed .* meanwhile"):
        await drive(apply_plan(scope, plans[2], None))


async def test_a_manifest_whose_parents_cannot_be_changes_nothing(repository: Repository) -> None:
    await repository.create_entity("b", parent_id="a")
    text = (
        "namespace: default\nsystem: {limits: {rpm: 1}}\nentities: {0: {name: x}, a: {parent: b}}"
    )
    with pytest.raises(ManifestConflictError, match="would form a cycle: a > b > a"):
        await apply(repository, text, force=True)
    assert await repository.get_entity("0") is None
    assert await repository.get_system_defaults() == ([], None)


async def test_an_apply_that_ends_after_any_step_is_completed_by_the_next(
    repository: Repository,
) -> None:
    class Killed(BaseException):
        pass

    async def apply_until(tenant: Repository, last: int) -> None:
        def end(done: int, steps: int) -> None:
            if done == last:
                raise Killed

        with pytest.raises(Killed):
            await apply(tenant, TEXT, progress=end)

    for last in range(1, 7):
        await repository.register_namespace(f"tenant-{last}")
        tenant = await repository.namespace(f"tenant-{last}")
        await apply_until(tenant, last)
        assert await apply(tenant, TEXT) == AppliedCounts(created=6 - last)
        for subject in ("$SYSTEM", "$RESOURCE:gpt-4", "acme"):
            assert len(await tenant.get_audit_events(subject)) == 1
        assert await apply(tenant, TEXT) == AppliedCounts()


async def test_an_export_plans_to_no_changes(repository: Repository) -> None:
    await apply(repository, TEXT)
    await repository.set_limits("by-hand", [RPM], "a/b:c", inherit=True)
    await repository.create_entity("alone", metadata={"n": [1, 2.5, {"deep": None}]})
    exported = await drive(export_manifest(repository.scope, "default"))
    assert not (await drive(plan_manifest(repository.scope, exported))).changes
    assert exported.configs.keys() == {
        SYSTEM_SLOT,
        ConfigSlot(None, "gpt-4"),
        ConfigSlot("by-hand", "a/b:c"),
        ConfigSlot("key-1", "_default_"),
        ConfigSlot("key-1", "gpt-4"),
    }
    assert exported.entities.keys() == {"acme", "key-1", "alone"}
