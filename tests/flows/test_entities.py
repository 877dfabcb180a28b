from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.drivers import ADMIN_DRIVERS, Driver, StoreKind, World, limiter_on, take
from zae_limiter import (
    AuditAction,
    Entity,
    EntityExistsError,
    EntityNotFoundError,
    EntityVersionError,
    Limit,
    RateLimiter,
    Repository,
    SyncRepository,
)

RPM = Limit.per_minute("rpm", 100)


@pytest.fixture
def driver(store_kind: StoreKind) -> Driver:
    return ADMIN_DRIVERS[store_kind]


async def test_an_entity_is_made_with_its_name_and_metadata(
    limiter: RateLimiter, repository: Repository
) -> None:
    made = await limiter.create_entity(
        "user:1@example.com", "Jörg 東京", "org-1", True, {"plan": "pro", "ключ": "значение"}
    )
    assert made == Entity(
        "user:1@example.com",
        "Jörg 東京",
        "org-1",
        True,
        {"plan": "pro", "ключ": "значение"},
        "2024-01-01T00:00:00Z",
    )
    assert await repository.get_entity("user:1@example.com") == made
    assert (made.is_child, made.is_parent, made.version) == (True, False, 1)
    plain = await repository.create_entity("plain")
    assert (plain.name, plain.metadata, plain.is_parent) == ("plain", {}, True)
    assert await repository.get_entity("nobody") is None


JSON_VALUES: dict[str, Any] = {
    "n": 1,
    "vast": 10**37,
    "x": -12.5,
    "third": 1 / 3,
    "on": True,
    "none": None,
    "": {"": ["a", 2, {"b": False}], "empty": {}},
}


async def test_metadata_of_json_values_comes_back_as_it_was(repository: Repository) -> None:
    made = await repository.create_entity("key-1", parent_id="org", metadata=JSON_VALUES)
    (child,) = await repository.get_children("org")
    assert made.metadata == child.metadata == JSON_VALUES
    updated = await repository.update_entity("key-1", metadata={"deep": [1, {"a": [2.5]}]})
    assert updated.metadata == {"deep": [1, {"a": [2.5]}]}
    changed, created = await repository.get_audit_events("key-1")
    assert changed.details["metadata"] == updated.metadata
    assert created.details["metadata"] == JSON_VALUES
    updated.metadata["deep"][1]["a"].append("mine")
    found = await repository.get_entity("key-1")
    assert found is not None
    assert found.metadata == {"deep": [1, {"a": [2.5]}]}


async def test_changing_a_returned_entity_does_not_change_the_stored_one(
    repository: Repository,
) -> None:
    metadata = {"plan": "pro"}
    made = await repository.create_entity("key-1", metadata=metadata)
    metadata["plan"] = "mine"
    made.metadata["plan"] = "yours"
    found = await repository.get_entity("key-1")
    assert found is not None
    assert found.metadata == {"plan": "pro"}
    (event,) = await repository.get_audit_events("key-1")
    assert event.details["metadata"] == {"plan": "pro"}


async def test_an_entity_with_an_existing_id_is_refused(limiter: RateLimiter, world: World) -> None:
    await limiter.create_entity("key-1", "first")
    before = world.dump()
    with pytest.raises(EntityExistsError) as refused:
        await limiter.create_entity("key-1", "second")
    assert refused.value.entity_id == "key-1"
    assert world.dump() == before


async def test_an_entity_that_may_exist_is_returned_as_it_is_stored(
    limiter: RateLimiter, world: World
) -> None:
    first = await limiter.create_entity("key-1", "first", "org", True, exist_ok=True)
    before = world.dump()
    again = await limiter.create_entity("key-1", "second", "org", True, exist_ok=True)
    assert again == first
    assert world.dump() == before


@pytest.mark.parametrize(("parent_id", "cascade"), [("other", True), ("org", False), (None, False)])
async def test_an_entity_that_is_charged_otherwise_is_refused_though_it_may_exist(
    limiter: RateLimiter, world: World, parent_id: str | None, cascade: bool
) -> None:
    await limiter.create_entity("key-1", "first", "org", True)
    before = world.dump()
    with pytest.raises(EntityExistsError, match=r"already exists with (parent_id|cascade) "):
        await limiter.create_entity("key-1", None, parent_id, cascade, exist_ok=True)
    assert world.dump() == before


async def test_an_update_changes_what_it_names_and_counts_the_version(
    limiter: RateLimiter, repository: Repository
) -> None:
    await limiter.create_entity("key-1", "first", "org", True, {"a": "1"})
    renamed = await limiter.update_entity("key-1", name="second")
    assert (renamed.name, renamed.metadata, renamed.version) == ("second", {"a": "1"}, 2)
    changed = await repository.update_entity("key-1", metadata={}, expected_version=2)
    assert (changed.name, changed.metadata, changed.version) == ("second", {}, 3)
    assert (changed.parent_id, changed.cascade) == ("org", True)
    assert await repository.get_entity("key-1") == changed


async def test_an_update_of_an_older_version_is_refused(limiter: RateLimiter, world: World) -> None:
    await limiter.create_entity("key-1")
    await limiter.update_entity("key-1", name="second", expected_version=1)
    before = world.dump()
    for version in (1, 3, 0, -1):
        with pytest.raises(EntityVersionError) as refused:
            await limiter.update_entity("key-1", name="third", expected_version=version)
        error = refused.value
        assert (error.entity_id, error.expected_version, error.version) == ("key-1", version, 2)
    with pytest.raises(EntityNotFoundError):
        await limiter.update_entity("nobody", name="x")
    assert world.dump() == before


async def test_one_of_eight_updates_of_one_version_wins(world: World) -> None:
    await world.repository.create_entity("key-1")

    def update(number: int) -> bool:
        repository = (
            SyncRepository.connect(url=world.url)
            if world.is_shared
            else SyncRepository.on_scope(world.scope, "default", owns_store=False)
        )
        with repository:
            try:
                repository.update_entity("key-1", name=f"name {number}", expected_version=1)
            except EntityVersionError:
                return False
            return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(update, range(8)))
    assert won.count(True) == 1
    found = await world.repository.get_entity("key-1")
    assert found is not None
    assert (found.name, found.version) == (f"name {won.index(True)}", 2)


async def test_updates_that_expect_no_version_never_fail_and_never_lose_a_field(
    world: World,
) -> None:
    await world.repository.create_entity("key-1", "name", metadata={"a": "0"})

    def update(number: int) -> None:
        repository = (
            SyncRepository.connect(url=world.url)
            if world.is_shared
            else SyncRepository.on_scope(world.scope, "default", owns_store=False)
        )
        with repository:
            if number % 2:
                repository.update_entity("key-1", name=f"name {number}")
            else:
                repository.update_entity("key-1", metadata={"a": str(number)})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(update, range(1, 9)))
    found = await world.repository.get_entity("key-1")
    assert found is not None
    assert found.version == 9
    assert found.name != "name"
    assert found.metadata != {"a": "0"}


async def test_a_deletion_takes_limits_buckets_and_usage_and_leaves_the_record(
    limiter: RateLimiter, repository: Repository
) -> None:
    await limiter.create_entity("key-1")
    await limiter.set_limits("key-1", [RPM], "gpt-4")
    await limiter.set_limits("key-2", [RPM], "gpt-4")
    await take(limiter, "key-1", rpm=10)
    await take(limiter, "key-2", rpm=10)
    await limiter.delete_entity("key-1", principal="alice")
    assert await limiter.get_entity("key-1") is None
    assert await limiter.get_limits("key-1", "gpt-4") == []
    assert await repository.get_buckets("key-1") == []
    assert await limiter.get_usage_snapshots("key-1") == ([], None)
    assert len(await repository.get_buckets("key-2")) == 1
    newest, *older = await limiter.get_audit_events("key-1")
    assert (newest.action, newest.principal) == (AuditAction.ENTITY_DELETED, "alice")
    # The entity, its limits and its bucket; where the store counts usage, that too.
    assert newest.details["records_deleted"] >= 3
    assert [event.action for event in older] == [
        AuditAction.LIMITS_SET,
        AuditAction.ENTITY_CREATED,
    ]


async def test_deleting_an_entity_that_does_not_exist_does_nothing(
    limiter: RateLimiter, world: World
) -> None:
    before = world.dump()
    await limiter.delete_entity("nobody")
    assert world.dump() == before


async def test_a_deleted_entity_s_limits_and_cascade_are_gone_at_once(world: World) -> None:
    limiter = world.limiter(default_limits=[Limit.per_minute("rpm", 7)])
    await limiter.create_entity("key-1", parent_id="org", cascade=True)
    await limiter.set_limits("key-1", [RPM])
    await take(limiter, rpm=7)
    await limiter.delete_entity("key-1")
    assert await limiter.available("key-1", "gpt-4") == {"rpm": 7}
    await take(limiter, rpm=1)
    (parent,) = await world.repository.get_buckets("org")
    assert parent.tokens_milli == 0


async def test_a_new_entity_cascades_at_once(world: World) -> None:
    limiter = world.limiter(default_limits=[RPM])
    await take(limiter, rpm=1)
    await limiter.create_entity("key-1", parent_id="org", cascade=True)
    await take(limiter, rpm=1)
    assert len(await world.repository.get_buckets("org")) == 1


async def test_children_of_an_entity_are_listed_in_order(limiter: RateLimiter) -> None:
    for entity_id in ("c", "a", "b"):
        await limiter.create_entity(entity_id, parent_id="org")
    await limiter.create_entity("other", parent_id="org-2")
    assert [child.id for child in await limiter.get_children("org")] == ["a", "b", "c"]
    assert await limiter.get_children("nobody") == []


async def test_each_change_of_an_entity_is_recorded(limiter: RateLimiter) -> None:
    await limiter.create_entity("key-1", "first", "org", True, {"a": "1"}, principal="alice")
    await limiter.update_entity("key-1", metadata={"b": "2"}, principal="bob")
    await limiter.delete_entity("key-1")
    events = await limiter.get_audit_events("key-1")
    assert [(event.action, event.principal, event.timestamp) for event in events] == [
        (AuditAction.ENTITY_DELETED, None, "2024-01-01T00:00:00Z"),
        (AuditAction.ENTITY_UPDATED, "bob", "2024-01-01T00:00:00Z"),
        (AuditAction.ENTITY_CREATED, "alice", "2024-01-01T00:00:00Z"),
    ]
    assert [event.details for event in events[1:]] == [
        {"name": "first", "metadata": {"b": "2"}},
        {"name": "first", "parent_id": "org", "cascade": True, "metadata": {"a": "1"}},
    ]


async def test_audit_events_are_read_in_pages(limiter: RateLimiter) -> None:
    await limiter.create_entity("key-1")
    for number in range(6):
        await limiter.update_entity("key-1", name=f"name {number}")
    everything = await limiter.get_audit_events("key-1")
    assert len({event.event_id for event in everything}) == 7
    first = await limiter.get_audit_events("key-1", limit=3)
    second = await limiter.get_audit_events("key-1", 3, first[-1].event_id)
    third = await limiter.get_audit_events("key-1", 3, second[-1].event_id)
    assert [*first, *second, *third] == everything
    assert await limiter.get_audit_events("key-1", 3, third[-1].event_id) == []
    assert await limiter.get_audit_events("nobody") == []


async def test_a_stranger_sees_the_same_entities(world: World) -> None:
    other = limiter_on(world.stranger())
    made = await world.limiter().create_entity("key-1", metadata={"a": "1"})
    assert await other.get_entity("key-1") == made
