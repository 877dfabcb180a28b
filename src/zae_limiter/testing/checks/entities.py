"""Entity records."""

from __future__ import annotations

from dataclasses import replace

from ...core.hierarchy import ConfigSlot
from ...core.limit import Limit
from ...core.models import Entity, LimiterConfig
from ...ports.repository_protocol import EntityQuery, UsageQuery
from .trial import Trial, expect, same

_ENTITY = Entity(
    "a:b@c.d-e_F",
    "Größe 東京 🗼 'quoted' \"twice\"",
    "org-1",
    True,
    {"clé": "valeur\nand a second line", "": "empty key", "empty value": "", "json": '{"a": [1]}'},
    "2024-01-01T00:00:00Z",
)


async def _create(trial: Trial, entity: Entity) -> bool:
    event = trial.event(entity.id)
    return await trial.store.entities.create(trial.namespace_id, entity, event)


async def _read(trial: Trial, entity_id: str) -> Entity | None:
    return await trial.store.entities.read(trial.namespace_id, entity_id)


async def check_an_entity_is_read_as_it_was_created(trial: Trial) -> None:
    plain = Entity("plain", None, None, False, {}, None)
    for entity in (_ENTITY, plain):
        same(await _read(trial, entity.id), None, "Before it was created")
        expect(await _create(trial, entity), "A new entity was not stored")
        found = await _read(trial, entity.id)
        same(found, entity, "The entity")
        same(found and found.version, 1, "The version of a new entity")


async def check_an_id_is_taken_once(trial: Trial) -> None:
    await _create(trial, _ENTITY)
    before = await trial.event_ids(_ENTITY.id)
    expect(not await _create(trial, Entity(_ENTITY.id, "another")), "The id was taken twice")
    same(await _read(trial, _ENTITY.id), _ENTITY, "The first entity must stay")
    same(await trial.event_ids(_ENTITY.id), before, "What was not stored was recorded")


async def check_concurrent_creates_store_one_entity(trial: Trial) -> None:
    rivals = [Entity("key-1", f"name {n}") for n in range(9)]
    stored = await trial.at_once(_create(trial, rival) for rival in rivals)
    winners = [rival for rival, won in zip(rivals, stored, strict=True) if won]
    same(winners, [await _read(trial, "key-1")], "Exactly one create may succeed")
    same(len(await trial.event_ids()), 1, "Exactly one event may be recorded")


async def check_an_update_replaces_name_and_metadata_only(trial: Trial) -> None:
    await _create(trial, _ENTITY)
    wanted = replace(_ENTITY, name="new", metadata={"only": "this"})
    other = replace(wanted, parent_id="org-2", cascade=False, created_at="never")
    event = trial.event(_ENTITY.id)
    changed = await trial.store.entities.update(trial.namespace_id, other, 1, event)
    same(changed, wanted, "What the update answered")
    same(changed and changed.version, 2, "The version")
    found = await _read(trial, _ENTITY.id)
    same((found, found and found.version), (wanted, 2), "What is read afterwards")
    same((await trial.event_ids(_ENTITY.id))[0], event.event_id, "The newest event")


async def check_an_update_needs_the_expected_version(trial: Trial) -> None:
    await _create(trial, _ENTITY)
    before = await trial.event_ids(_ENTITY.id)
    for entity, version in (
        (replace(_ENTITY, name="x"), 0),
        (replace(_ENTITY, name="x"), 2),
        (Entity("nobody"), 1),
    ):
        event = trial.event(_ENTITY.id)
        changed = await trial.store.entities.update(trial.namespace_id, entity, version, event)
        same(changed, None, f"Update of version {version}")
    same(await _read(trial, _ENTITY.id), _ENTITY, "Nothing may have changed")
    same(await _read(trial, "nobody"), None, "An update must not create")
    same(await trial.event_ids(_ENTITY.id), before, "What did not happen was recorded")


async def check_concurrent_updates_of_a_version_change_it_once(trial: Trial) -> None:
    await _create(trial, Entity("key-1"))
    update = trial.store.entities.update
    rivals = [Entity("key-1", f"name {n}") for n in range(9)]
    outcomes = await trial.at_once(
        update(trial.namespace_id, rival, 1, trial.event()) for rival in rivals
    )
    winners = [outcome for outcome in outcomes if outcome is not None]
    same(winners, [await _read(trial, "key-1")], "Exactly one update may succeed")
    same([winner.version for winner in winners], [2], "The version")


async def check_a_deletion_takes_all_that_is_the_entity_s_own(trial: Trial) -> None:
    await _create(trial, Entity("key-1"))
    await _create(trial, Entity("key-10"))
    slots = [ConfigSlot(entity_id, "gpt-4") for entity_id in ("key-1", "key-10")]
    config = LimiterConfig((Limit.per_minute("rpm", 1),))
    for slot in slots:
        await trial.store.configs.write(trial.namespace_id, slot, config, trial.event())
        await trial.write(trial.address(slot.entity_id or ""), trial.create({"rpm": 5}))
    before = await trial.event_ids()
    event = trial.event(action="entity_deleted")
    deleted = await trial.store.entities.delete(trial.namespace_id, "key-1", event)
    expect(deleted >= 3, f"{deleted} records went: entity, config, bucket at least")
    await _expect_gone(trial, slots)
    found = await trial.store.audit.read(trial.namespace_id, "key-1", 1000, None)
    same(found[0], event.with_details(records_deleted=deleted), "The newest event")
    same([event.event_id for event in found[1:]], before, "Older events must stay")


async def _expect_gone(trial: Trial, slots: list[ConfigSlot]) -> None:
    store, namespace_id = trial.store, trial.namespace_id
    same(await _read(trial, "key-1"), None, "The entity")
    same((await store.configs.read(namespace_id, slots)).configs.keys(), {slots[1]}, "Its config")
    same(await store.buckets.of_entity(namespace_id, "key-1"), {}, "Its buckets")
    query = UsageQuery(entity_id="key-1")
    same(await store.usage.read(namespace_id, query, 10, None), ([], None), "Its usage")
    expect(await _read(trial, "key-10") is not None, "Another entity was deleted")
    expect(bool(await store.buckets.of_entity(namespace_id, "key-10")), "Another's bucket went")


async def check_a_deletion_of_nothing_is_not_recorded(trial: Trial) -> None:
    event = trial.event(action="entity_deleted")
    same(await trial.store.entities.delete(trial.namespace_id, "key-1", event), 0, "deleted")
    same(await trial.event_ids(), [], "What did not happen was recorded")


async def check_children_are_listed_by_id(trial: Trial) -> None:
    children = [Entity(entity_id, "x", "org-1", False, {"k": "é"}) for entity_id in ("b", "a", "B")]
    for entity in (*children, Entity("c", parent_id="org-10"), Entity("org-1")):
        await _create(trial, entity)
    listed = trial.store.entities.children
    in_order = sorted(children, key=lambda child: child.id)
    same(await listed(trial.namespace_id, "org-1"), in_order, "children")
    same(await listed(trial.namespace_id, "nobody"), [], "children of nobody")
    await trial.store.entities.delete(trial.namespace_id, "a", trial.event("a"))
    remaining = [child.id for child in await listed(trial.namespace_id, "org-1")]
    same(remaining, ["B", "b"], "children after one was deleted")


async def check_entities_of_tenants_do_not_meet(trial: Trial) -> None:
    other = trial.other_tenant()
    await _create(trial, _ENTITY)
    same(await _read(other, _ENTITY.id), None, "Another tenant's entity was read")
    same(await other.store.entities.children(other.namespace_id, "org-1"), [], "children")
    deleted = await other.store.entities.delete(other.namespace_id, _ENTITY.id, other.event())
    same(deleted, 0, "Another tenant's entity was deleted")
    event = other.event(_ENTITY.id)
    same(await other.store.entities.update(other.namespace_id, _ENTITY, 1, event), None, "update")
    expect(await _create(other, replace(_ENTITY, name="mine")), "The id must be free there")
    same(await _read(trial, _ENTITY.id), _ENTITY, "Another tenant's entity was changed")


async def check_what_is_read_is_a_copy(trial: Trial) -> None:
    """Metadata and details are mutable; changing them must not change what is stored."""
    mine, event = replace(_ENTITY, metadata={"k": "v"}), trial.event(_ENTITY.id)
    await trial.store.entities.create(trial.namespace_id, mine, event)
    page = await trial.store.configs.read(trial.namespace_id, [], mine.id)
    children = await trial.store.entities.children(trial.namespace_id, "org-1")
    found = await _read(trial, mine.id)
    assert found is not None
    assert page.entity is not None
    for entity in (mine, found, page.entity, *children):
        entity.metadata["k"] = "changed"
    recorded = await trial.store.audit.read(trial.namespace_id, mine.id, 1, None)
    for known in (event, *recorded):
        known.details["note"] = "changed"
    found = await _read(trial, mine.id)
    same(found and found.metadata, {"k": "v"}, "The stored metadata")
    recorded = await trial.store.audit.read(trial.namespace_id, mine.id, 1, None)
    expect(recorded[0].details["note"] != "changed", "A recorded event was changed")


async def check_entities_are_listed_in_pages(trial: Trial) -> None:
    ids = [f"key-{n}" for n in range(5)] + ["org", "org-1", "org.2"]
    for entity_id in reversed(ids):
        parent = "org" if entity_id.startswith("key") else None
        await _create(trial, Entity(entity_id, parent_id=parent))
        slot = ConfigSlot(entity_id, "gpt-4")
        config = LimiterConfig((Limit.per_minute("rpm", 1),))
        await trial.store.configs.write(trial.namespace_id, slot, config, trial.event(entity_id))
    for query, expected in (
        (EntityQuery(), ids),
        (EntityQuery("org"), ["org", "org-1", "org.2"]),
        (EntityQuery(parent_id="org"), ids[:5]),
        (EntityQuery("key-3", "org"), ["key-3"]),
        (EntityQuery("z"), []),
        (EntityQuery(parent_id="nobody"), []),
    ):
        for limit in (1, 2, 8, 9):
            pages = await _pages(trial, query, limit)
            expect(all(len(page) == limit for page in pages[:-1]), f"Pages of {limit}: {pages}")
            listed = [entity_id for page in pages for entity_id in page]
            same(sorted(listed), listed, "The order of ids")
            same(listed, sorted(expected), f"The entities of {query}")


async def _pages(trial: Trial, query: EntityQuery, limit: int) -> list[list[str]]:
    pages: list[list[str]] = []
    cursor: str | None = None
    while True:
        found, cursor = await trial.store.entities.page(trial.namespace_id, query, limit, cursor)
        pages.append([entity.id for entity in found])
        if cursor is None:
            return pages


async def check_entities_of_other_tenants_are_not_listed(trial: Trial) -> None:
    other = trial.other_tenant()
    await _create(trial, _ENTITY)
    same(await _pages(other, EntityQuery(), 10), [[]], "The entities of another tenant")
    same(await _pages(other, EntityQuery(parent_id="org-1"), 10), [[]], "Its children")


async def check_several_entities_are_read_by_id(trial: Trial) -> None:
    ids = [f"key-{n}" for n in range(120)]
    for entity_id in ids[::20]:
        entity = Entity(entity_id, metadata={"n": 1})
        await trial.store.entities.create(trial.namespace_id, entity, trial.event(entity_id))
    found = await trial.store.entities.read_several(trial.namespace_id, [*ids, *ids[:3]])
    same(sorted(found), sorted(ids[::20]), "ids")
    same(found["key-20"], Entity("key-20", metadata={"n": 1}), "entity")
    same(await trial.store.entities.read_several(trial.namespace_id, []), {}, "no ids")
