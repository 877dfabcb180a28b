"""The registry of namespaces."""

from __future__ import annotations

from dataclasses import replace

from ...core.audit import namespace_audit_id
from ...core.exceptions import NamespaceStateError
from ...core.hierarchy import SYSTEM_SLOT, ConfigSlot
from ...core.limit import Limit
from ...core.models import Entity, LimiterConfig
from ...core.validation import RESERVED_NAMESPACE
from ...ports.repository_protocol import NamespaceRecord, UsageQuery
from .trial import Trial, expect, same

_CREATED = "2024-01-01T00:00:00Z"
_DELETED = "2024-02-02T00:00:00Z"


async def _registered(trial: Trial, name: str) -> NamespaceRecord:
    """The name, registered under a new id."""
    record = NamespaceRecord(name, trial.other_tenant().namespace_id, _CREATED)
    same(await trial.store.namespaces.register(record), record, f"Registering {name}")
    return record


async def _orphans(trial: Trial, name: str) -> list[NamespaceRecord]:
    return [record for record in await trial.store.namespaces.orphans() if record.name == name]


async def check_a_namespace_is_found_by_name_and_id(trial: Trial) -> None:
    namespaces, name = trial.store.namespaces, trial.name("team/a.b:c@d_e")
    same(await namespaces.read(name), None, "Before it was registered")
    same(await namespaces.read_id(trial.namespace_id), None, "An id that nobody has")
    record = await _registered(trial, name)
    same(await namespaces.read(name), record, "By name")
    same(await namespaces.read_id(record.namespace_id), record, "By id")
    again = replace(record, namespace_id=trial.namespace_id, created_at=_DELETED)
    same(await namespaces.register(again), record, "Registered again")
    same(await namespaces.read_id(trial.namespace_id), None, "The id of the second registration")


async def check_concurrent_registrations_agree(trial: Trial) -> None:
    name = trial.name("contested")
    rivals = [NamespaceRecord(name, trial.other_tenant().namespace_id, _CREATED) for _ in range(9)]
    answers = await trial.at_once(trial.store.namespaces.register(rival) for rival in rivals)
    wanted = await trial.store.namespaces.read(name)
    expect(wanted in rivals, "The name must be registered")
    same(answers, [wanted] * len(rivals), "All must be told of the same namespace")
    found = [await trial.store.namespaces.read_id(rival.namespace_id) for rival in rivals]
    same([record for record in found if record], [wanted], "Nothing may be left of the others")


async def check_active_namespaces_are_listed_by_name(trial: Trial) -> None:
    records = [await _registered(trial, trial.name(stem)) for stem in ("b", "a", "B")]
    await trial.store.namespaces.delete(trial.name("b"), _DELETED)
    active = await trial.store.namespaces.active()
    same(active, sorted(active, key=lambda record: record.name), "The order")
    mine = [record for record in active if record.name.endswith(trial.namespace_id)]
    same(mine, [records[2], records[1]], "The active ones")


async def check_a_deleted_namespace_frees_its_name_and_keeps_its_data(trial: Trial) -> None:
    namespaces, name = trial.store.namespaces, trial.name("team")
    record = await _registered(trial, name)
    tenant = trial.tenant(record.namespace_id)
    await _fill(tenant)
    await namespaces.delete(name, _DELETED)
    deleted = replace(record, status="deleted", deleted_at=_DELETED)
    same(await namespaces.read(name), None, "By name")
    same(await namespaces.read_id(record.namespace_id), deleted, "By id")
    same(await _orphans(trial, name), [deleted], "orphans")
    expect(await tenant.bucket(tenant.address()) is not None, "The data must stay")
    await namespaces.delete(name, _DELETED)
    await namespaces.delete(trial.name("unknown"), _DELETED)
    same(await namespaces.read_id(record.namespace_id), deleted, "Deleted twice")


async def check_a_freed_name_can_be_registered_anew(trial: Trial) -> None:
    namespaces, name = trial.store.namespaces, trial.name("team")
    first = await _registered(trial, name)
    await namespaces.delete(name, _DELETED)
    second = await _registered(trial, name)
    same(await namespaces.read(name), second, "By name")
    await namespaces.delete(name, _DELETED)
    orphans = {record.namespace_id for record in await _orphans(trial, name)}
    same(orphans, {first.namespace_id, second.namespace_id}, "Both are orphans")


async def check_a_deleted_namespace_can_be_recovered(trial: Trial) -> None:
    namespaces, name = trial.store.namespaces, trial.name("team")
    record = await _registered(trial, name)
    expect(not await namespaces.recover(record.namespace_id), "Recovered what is active")
    expect(not await namespaces.recover(trial.namespace_id), "Recovered what never was")
    await namespaces.delete(name, _DELETED)
    expect(await namespaces.recover(record.namespace_id), "Could not recover")
    same(await namespaces.read(name), record, "By name")
    same(await namespaces.read_id(record.namespace_id), record, "By id")
    same(await _orphans(trial, name), [], "orphans")


async def check_a_namespace_whose_name_is_taken_cannot_be_recovered(trial: Trial) -> None:
    namespaces, name = trial.store.namespaces, trial.name("team")
    first = await _registered(trial, name)
    await namespaces.delete(name, _DELETED)
    second = await _registered(trial, name)
    expect(not await namespaces.recover(first.namespace_id), "Two namespaces have one name")
    same(await namespaces.read(name), second, "By name")
    same([r.namespace_id for r in await _orphans(trial, name)], [first.namespace_id], "orphans")


async def check_a_purge_deletes_everything_of_one_namespace(trial: Trial) -> None:
    namespaces, name = trial.store.namespaces, trial.name("team")
    record = await _registered(trial, name)
    tenant, other = trial.tenant(record.namespace_id), trial.other_tenant()
    await _fill(tenant)
    await _fill(other)
    await namespaces.delete(name, _DELETED)
    purged = await namespaces.purge(record.namespace_id)
    expect(purged >= 4, f"{purged} records went: bucket, config, entity, events at least")
    same(await namespaces.read_id(record.namespace_id), None, "The record")
    same(await _orphans(trial, name), [], "orphans")
    same(await _contents(tenant), _NOTHING, "The data")
    expect(await _contents(other) != _NOTHING, "Another namespace was purged")
    same(await namespaces.purge(record.namespace_id), 0, "Purged again")
    await _registered(trial, name)


async def check_a_purge_of_a_namespace_that_was_recovered_deletes_nothing(trial: Trial) -> None:
    """Whoever purges has seen it deleted; someone else may have recovered it since."""
    namespaces, name = trial.store.namespaces, trial.name("team")
    record = await _registered(trial, name)
    tenant = trial.tenant(record.namespace_id)
    await _fill(tenant)
    before = await _contents(tenant)
    await namespaces.delete(name, _DELETED)
    expect(await namespaces.recover(record.namespace_id), "Could not recover")
    try:
        await namespaces.purge(record.namespace_id)
        expect(False, "An active namespace was purged")
    except NamespaceStateError as error:
        same((error.namespace_name, error.state), (name, "active"), "What the error says")
    same(await namespaces.read(name), record, "The record")
    same(await _contents(tenant), before, "The data")


async def check_changes_of_a_namespace_are_recorded_where_a_purge_leaves_them(trial: Trial) -> None:
    namespaces, name = trial.store.namespaces, trial.name("team")
    audit_id = namespace_audit_id(name)
    made, again, deleted, recovered, late, purged, gone = (trial.event(audit_id) for _ in range(7))
    record = NamespaceRecord(name, trial.other_tenant().namespace_id, _CREATED)
    for event in (made, again):
        same(await namespaces.register(record, event), record, "Registering")
    for event in (deleted, again):
        await namespaces.delete(name, _DELETED, event)
    for event in (recovered, again):
        await namespaces.recover(record.namespace_id, event)
    await namespaces.delete(name, _DELETED, late)
    for event in (purged, gone):
        await namespaces.purge(record.namespace_id, event)
    found = await trial.store.audit.read(RESERVED_NAMESPACE, audit_id, 1000, None)
    wanted = [purged, late, recovered, deleted, made]
    named = [event.with_details(namespace_id=record.namespace_id) for event in wanted]
    same(found, named, "Events of what changed, newest first")


async def check_a_purge_that_is_refused_records_no_event(trial: Trial) -> None:
    name = trial.name("team")
    record = await _registered(trial, name)
    try:
        await trial.store.namespaces.purge(
            record.namespace_id, trial.event(namespace_audit_id(name))
        )
        expect(False, "An active namespace was purged")
    except NamespaceStateError:
        pass
    found = await trial.store.audit.read(RESERVED_NAMESPACE, namespace_audit_id(name), 1000, None)
    same(found, [], "Events")


async def _fill(tenant: Trial) -> None:
    store, namespace_id = tenant.store, tenant.namespace_id
    await tenant.write(tenant.address(), tenant.create({"rpm": 1}))
    config = LimiterConfig((Limit.per_minute("rpm", 1),))
    for slot in (SYSTEM_SLOT, ConfigSlot("key-1", "gpt-4"), ConfigSlot(resource="gpt-4")):
        await store.configs.write(namespace_id, slot, config, tenant.event())
    await store.entities.create(namespace_id, Entity("key-1", parent_id="org"), tenant.event())


async def _contents(tenant: Trial) -> tuple[object, ...]:
    store, namespace_id = tenant.store, tenant.namespace_id
    slots = [SYSTEM_SLOT, ConfigSlot("key-1", "gpt-4"), ConfigSlot(resource="gpt-4")]
    usage, _ = await store.usage.read(namespace_id, UsageQuery(resource="gpt-4"), 10, None)
    return (
        await store.buckets.of_resource(namespace_id, "gpt-4"),
        dict((await store.configs.read(namespace_id, slots)).configs),
        await store.configs.resources_with_defaults(namespace_id),
        await store.entities.children(namespace_id, "org"),
        await tenant.event_ids(),
        usage,
    )


_NOTHING: tuple[object, ...] = ({}, {}, [], [], [], [])
