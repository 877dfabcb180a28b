"""Stored limits and behaviour."""

from __future__ import annotations

from ...core.hierarchy import SYSTEM_SLOT, ConfigSlot
from ...core.limit import Limit
from ...core.models import Entity, LimiterConfig
from ...core.validation import DEFAULT_RESOURCE, MAX_AMOUNT, MAX_PERIOD_SECONDS
from ...ports.repository_protocol import Declaration
from .trial import Trial, expect, same

_RPM = Limit.per_minute("rpm", 100, burst=150)
_TPM = Limit("t-p.m_2", MAX_AMOUNT, MAX_AMOUNT, MAX_PERIOD_SECONDS)
_SLOT = ConfigSlot("key-1", "gpt-4")


async def _write(trial: Trial, slot: ConfigSlot, change: LimiterConfig) -> int:
    version = await trial.store.configs.write(trial.namespace_id, slot, change, trial.event())
    return version or 0


async def _declare(
    trial: Trial, slot: ConfigSlot, change: LimiterConfig, declaration: Declaration
) -> int | None:
    configs, event = trial.store.configs, trial.event()
    return await configs.write(trial.namespace_id, slot, change, event, declaration)


async def _delete(trial: Trial, slot: ConfigSlot, declaration: Declaration | None = None) -> bool:
    configs, event = trial.store.configs, trial.event()
    return await configs.delete(trial.namespace_id, slot, event, declaration)


async def _read(trial: Trial, slot: ConfigSlot) -> LimiterConfig | None:
    page = await trial.store.configs.read(trial.namespace_id, [slot])
    return page.configs.get(slot)


def _sorted(config: LimiterConfig | None) -> tuple[object, ...]:
    """All that a config says; the order of its limits means nothing."""
    if config is None:
        return ()
    limits = config.limits and tuple(sorted(config.limits, key=lambda limit: limit.name))
    flags = (config.inherit, config.on_unavailable, config.auto_update, config.strict_version)
    return (limits, *flags, config.config_version)


async def check_a_config_is_read_as_it_was_written(trial: Trial) -> None:
    for slot in (
        SYSTEM_SLOT,
        ConfigSlot(resource="gpt-4/x:y.z"),
        ConfigSlot("a:b@c.d-e_F", DEFAULT_RESOURCE),
        ConfigSlot("a:b@c.d-e_F", "gpt-4"),
    ):
        same(await _read(trial, slot), None, f"{slot} before it was written")
        same(await _write(trial, slot, LimiterConfig((_TPM, _RPM))), 1, f"version of {slot}")
        wanted = LimiterConfig((_RPM, _TPM), config_version=1)
        same(_sorted(await _read(trial, slot)), _sorted(wanted), f"{slot}")


async def check_whether_limits_inherit_is_stored_with_them(trial: Trial) -> None:
    for slot in (ConfigSlot(resource="gpt-4"), _SLOT):
        for inherit in (True, False, True):
            await _write(trial, slot, LimiterConfig((_RPM,), inherit=inherit))
            same(await _read(trial, slot), LimiterConfig((_RPM,), inherit=inherit), f"{slot}")
        await _delete(trial, slot)
        same(await _read(trial, slot), None, f"{slot} after it was deleted")
        await _write(trial, slot, LimiterConfig((_RPM,)))
        same(await _read(trial, slot), LimiterConfig((_RPM,)), f"{slot} made anew")


async def check_a_write_of_no_limits_clears_them_and_keeps_the_rest(trial: Trial) -> None:
    await _write(trial, SYSTEM_SLOT, LimiterConfig((_RPM,), on_unavailable="allow"))
    await _write(trial, SYSTEM_SLOT, LimiterConfig(()))
    same(await _read(trial, SYSTEM_SLOT), LimiterConfig(on_unavailable="allow"), "system record")


async def check_a_declaration_marks_what_it_changes(trial: Trial) -> None:
    async def marks() -> dict[ConfigSlot, str]:
        return await trial.store.configs.marks(trial.namespace_id)

    slots = (SYSTEM_SLOT, ConfigSlot(resource="gpt-4/x:y.z"), ConfigSlot("a:b@c", DEFAULT_RESOURCE))
    for slot in slots:
        same(
            await _declare(trial, slot, LimiterConfig((_RPM,)), Declaration(None, "one")), 1, "new"
        )
        seen = await _read(trial, slot)
        await _declare(trial, slot, LimiterConfig((_TPM,)), Declaration(seen, "two"))
    same(await marks(), dict.fromkeys(slots, "two"), "marks")
    same(await trial.other_tenant().store.configs.marks(trial.name("other")), {}, "other tenant")
    await _write(trial, slots[1], LimiterConfig((_RPM,)))
    seen = await _read(trial, slots[2])
    expect(await _delete(trial, slots[2], Declaration(seen, None)), "a record as seen is deleted")
    same(await marks(), dict.fromkeys(slots[:2], "two"), "marks after other changes")
    await trial.store.configs.mark(trial.namespace_id, slots[0], None)
    await trial.store.configs.mark(trial.namespace_id, slots[2], "three")
    same(await marks(), {slots[1]: "two", slots[2]: "three"}, "marks that were set alone")
    same(await _read(trial, slots[2]), None, "record with a mark alone")


async def check_a_declaration_changes_nothing_if_the_record_is_not_as_seen(trial: Trial) -> None:
    change = LimiterConfig((_TPM,))
    await _write(trial, _SLOT, LimiterConfig((_RPM,)))
    seen = await _read(trial, _SLOT)
    await _write(trial, _SLOT, LimiterConfig((_RPM,)))
    events = await trial.event_ids()
    for stale in (None, seen):
        same(await _declare(trial, _SLOT, change, Declaration(stale, "mark")), None, "version")
        same(await _delete(trial, _SLOT, Declaration(stale, "mark")), False, "deleted")
    same(await _read(trial, _SLOT), LimiterConfig((_RPM,)), "record")
    same(await trial.store.configs.marks(trial.namespace_id), {}, "marks")
    same(await trial.event_ids(), events, "events")
    await _delete(trial, _SLOT)
    same(
        await _declare(trial, _SLOT, change, Declaration(seen, "mark")),
        None,
        "version once deleted",
    )
    same(await _delete(trial, _SLOT, Declaration(None, "mark")), False, "deleted again")
    same(await trial.store.configs.marks(trial.namespace_id), {}, "marks once deleted")


async def check_of_declarations_at_the_same_time_one_is_made(trial: Trial) -> None:
    changes = [LimiterConfig((Limit.per_minute("rpm", n + 1),)) for n in range(5)]
    versions = await trial.at_once(
        _declare(trial, _SLOT, change, Declaration(None, str(n)))
        for n, change in enumerate(changes)
    )
    same(sorted(map(str, versions)), ["1", *["None"] * 4], "versions")
    winner = versions.index(1)
    same(await _read(trial, _SLOT), changes[winner], "record")
    same(await trial.store.configs.marks(trial.namespace_id), {_SLOT: str(winner)}, "marks")


async def check_a_write_keeps_the_fields_that_it_does_not_name(trial: Trial) -> None:
    changes = (
        LimiterConfig((_RPM,), on_unavailable="allow"),
        LimiterConfig(auto_update=False),
        LimiterConfig(strict_version=True),
        LimiterConfig((_TPM,)),
        LimiterConfig(on_unavailable="block", strict_version=False),
    )
    for version, change in enumerate(changes, 1):
        same(await _write(trial, SYSTEM_SLOT, change), version, "config_version")
    wanted = LimiterConfig((_TPM,), "block", False, False, config_version=5)
    same(_sorted(await _read(trial, SYSTEM_SLOT)), _sorted(wanted), "The merged record")


async def check_versions_count_on_over_a_deletion(trial: Trial) -> None:
    await _write(trial, _SLOT, LimiterConfig((_RPM,), strict_version=False))
    expect(await _delete(trial, _SLOT), "Deleting what is there must say so")
    same(await _read(trial, _SLOT), None, "A deleted config")
    expect(not await _delete(trial, _SLOT), "Deleting what is gone must say so")
    version = await _write(trial, _SLOT, LimiterConfig((_TPM,)))
    expect(version > 1, f"config_version went back to {version}")
    wanted = LimiterConfig((_TPM,), config_version=version)
    same(_sorted(await _read(trial, _SLOT)), _sorted(wanted), "A config after its deletion")


async def check_concurrent_writes_each_have_a_version(trial: Trial) -> None:
    change = LimiterConfig((_RPM,))
    versions = await trial.at_once(_write(trial, _SLOT, change) for _ in range(12))
    same(sorted(versions), list(range(1, 13)), "config_version")


async def check_several_slots_and_the_entity_come_in_one_read(trial: Trial) -> None:
    entity = Entity(
        "key-1", "Schlüssel", "org-1", True, {"city": "Łódź 🏭"}, "2024-01-01T00:00:00Z"
    )
    await trial.store.entities.create(trial.namespace_id, entity, trial.event())
    await _write(trial, _SLOT, LimiterConfig((_RPM,)))
    await _write(trial, SYSTEM_SLOT, LimiterConfig(on_unavailable="allow"))
    slots = [_SLOT, ConfigSlot("key-1", DEFAULT_RESOURCE), ConfigSlot(resource="x"), SYSTEM_SLOT]
    page = await trial.store.configs.read(trial.namespace_id, slots, "key-1")
    same(set(page.configs), {_SLOT, SYSTEM_SLOT}, "Only what exists is there")
    same(page.entity, entity, "The entity on the way")
    page = await trial.store.configs.read(trial.namespace_id, slots)
    same(page.entity, None, "An entity that was not asked for")
    page = await trial.store.configs.read(trial.namespace_id, [], "nobody")
    same((dict(page.configs), page.entity), ({}, None), "What does not exist")


async def check_config_events_are_recorded_with_the_change(trial: Trial) -> None:
    configs = trial.store.configs
    events = [trial.event() for _ in range(3)]
    await configs.write(trial.namespace_id, _SLOT, LimiterConfig((_RPM,)), events[0])
    same(await trial.event_ids(), [events[0].event_id], "After the write")
    await configs.delete(trial.namespace_id, _SLOT, events[1])
    await configs.delete(trial.namespace_id, _SLOT, events[2])
    wanted = [events[1].event_id, events[0].event_id]
    same(await trial.event_ids(), wanted, "A deletion is recorded only if it deleted something")
    found = await trial.store.audit.read(trial.namespace_id, "key-1", 1000, None)
    same(found, [events[1], events[0]], "An event must be read as it was recorded")


async def check_entities_with_limits_are_listed_in_pages(trial: Trial) -> None:
    ids = sorted(["b", "a", "key:1", "key-1", "Z", "user@example.com", "k.9"])
    for entity_id in reversed(ids):
        await _write(trial, ConfigSlot(entity_id, "gpt-4"), LimiterConfig((_RPM,)))
    await _write(trial, ConfigSlot("elsewhere", "gpt-3"), LimiterConfig((_RPM,)))
    await _write(trial, ConfigSlot("gone", "gpt-4"), LimiterConfig((_RPM,)))
    await _delete(trial, ConfigSlot("gone", "gpt-4"))
    await _write(trial, ConfigSlot(resource="gpt-4"), LimiterConfig((_RPM,)))
    listed = trial.store.configs.entities_with_limits
    same(await listed(trial.namespace_id, "gpt-4", None, None), (ids, None), "All at once")
    same(await listed(trial.namespace_id, "gpt-4", len(ids), None), (ids, None), "One full page")
    same(await listed(trial.namespace_id, "gpt-9", 5, None), ([], None), "None")
    for size in (1, 2, 3):
        same(await _paged(trial, size), ids, f"Pages of {size}")


async def _paged(trial: Trial, size: int) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    cursors: set[str] = set()
    while True:
        page, cursor = await trial.store.configs.entities_with_limits(
            trial.namespace_id, "gpt-4", size, cursor
        )
        expect(len(page) <= size, f"A page of {len(page)}")
        found += page
        if cursor is None:
            return found
        expect(cursor not in cursors, f"A cursor that leads back: {cursor}")
        cursors.add(cursor)


async def check_resources_with_limits_are_listed(trial: Trial) -> None:
    for slot in (
        ConfigSlot("b", "gpt-4"),
        ConfigSlot("a", "gpt-4"),
        ConfigSlot("a", "claude"),
        ConfigSlot("a", DEFAULT_RESOURCE),
        ConfigSlot(resource="whisper"),
        ConfigSlot(resource="dall-e"),
        SYSTEM_SLOT,
    ):
        await _write(trial, slot, LimiterConfig((_RPM,)))
    configs, namespace_id = trial.store.configs, trial.namespace_id
    of_entities = sorted(["gpt-4", "claude", DEFAULT_RESOURCE])
    same(await configs.resources_with_entity_limits(namespace_id), of_entities, "of entities")
    same(await configs.resources_with_defaults(namespace_id), ["dall-e", "whisper"], "defaults")
    await _delete(trial, ConfigSlot("a", "claude"))
    await _delete(trial, ConfigSlot("a", "gpt-4"))
    await _delete(trial, ConfigSlot(resource="whisper"))
    of_entities = sorted(["gpt-4", DEFAULT_RESOURCE])
    same(await configs.resources_with_entity_limits(namespace_id), of_entities, "of entities")
    same(await configs.resources_with_defaults(namespace_id), ["dall-e"], "defaults")


async def check_configs_of_tenants_do_not_meet(trial: Trial) -> None:
    other = trial.other_tenant()
    for slot in (SYSTEM_SLOT, _SLOT, ConfigSlot(resource="gpt-4")):
        await _write(trial, slot, LimiterConfig((_RPM,)))
        same(await _read(other, slot), None, f"Another tenant's {slot} was read")
        expect(not await _delete(other, slot), f"Another tenant's {slot} was deleted")
    configs = other.store.configs
    listed = await configs.entities_with_limits(other.namespace_id, "gpt-4", None, None)
    same(listed, ([], None), "Another tenant's entities were listed")
    same(await configs.resources_with_defaults(other.namespace_id), [], "defaults")
    same(await configs.resources_with_entity_limits(other.namespace_id), [], "of entities")
    same(await other.event_ids(), [], "Another tenant's events were read")


async def check_entities_with_records_are_listed_completely_or_not_at_all(trial: Trial) -> None:
    async def listed(at_most: int) -> frozenset[str] | None:
        return await trial.store.configs.entities_with_records(trial.namespace_id, at_most)

    await _write(trial, SYSTEM_SLOT, LimiterConfig((_RPM,)))
    await _write(trial, ConfigSlot(resource="gpt-4"), LimiterConfig((_RPM,)))
    await _write(trial, _SLOT, LimiterConfig((_RPM,)))
    await _write(trial, ConfigSlot("key-1", DEFAULT_RESOURCE), LimiterConfig((_RPM,)))
    await trial.store.entities.create(trial.namespace_id, Entity("key-2"), trial.event())
    found = await listed(10)
    expect(found in (None, {"key-1", "key-2"}), f"entities with records: {found}")
    same(await listed(1), None, "entities with records, more than at_most")
