from __future__ import annotations

import pytest

from tests.support.drivers import (
    ADMIN_DRIVERS,
    EMBEDDED,
    SHARED,
    Driver,
    StoreKind,
    World,
    balance,
    connect_repository,
    limiter_on,
    take,
)
from zae_limiter import (
    EntityNotFoundError,
    Limit,
    NamespaceNotFoundError,
    NamespaceStateError,
    RateLimitExceeded,
    Repository,
    ValidationError,
)

RPM = Limit.per_minute("rpm", 100)


@pytest.fixture
def driver(store_kind: StoreKind) -> Driver:
    return ADMIN_DRIVERS[store_kind]


async def test_a_repository_opens_the_default_namespace(repository: Repository) -> None:
    found = await repository.get_namespace("default")
    assert found == {
        "name": "default",
        "namespace_id": repository.namespace_id,
        "status": "active",
        "created_at": "2024-01-01T00:00:00Z",
    }
    assert repository.namespace_name == "default"


async def test_registering_a_namespace_again_returns_its_id(repository: Repository) -> None:
    first = await repository.register_namespace("team-a")
    assert await repository.register_namespace("team-a") == first
    assert len(first) == 11
    assert not first.startswith("-")
    ids = await repository.register_namespaces(["team-b", "team-a", "team-b"])
    assert ids["team-a"] == first
    assert set(ids) == {"team-a", "team-b"}
    listed = await repository.list_namespaces()
    assert [record["name"] for record in listed] == ["default", "team-a", "team-b"]
    assert set(listed[0]) == {"name", "namespace_id", "created_at"}


async def test_a_namespace_that_was_never_registered_is_not_found(repository: Repository) -> None:
    assert await repository.get_namespace("nowhere") is None
    with pytest.raises(NamespaceNotFoundError) as refused:
        await repository.namespace("nowhere")
    assert refused.value.namespace_name == "nowhere"


async def test_namespaces_share_nothing_but_the_store(world: World) -> None:
    here = world.repository
    await here.register_namespace("team-a")
    there = await here.namespace("team-a")
    assert (there.namespace_name, there.stack_name) == ("team-a", here.stack_name)
    await here.set_system_defaults([RPM])
    await there.set_system_defaults([Limit.per_minute("rpm", 5)])
    await here.create_entity("key-1", "ours")
    await there.create_entity("key-1", "theirs")
    await take(limiter_on(here), rpm=50)
    await take(limiter_on(there), rpm=5)
    with pytest.raises(RateLimitExceeded):
        await take(limiter_on(there), rpm=1)
    assert await balance(here) == {"rpm": 50_000}
    await there.delete_entity("key-1")
    assert await balance(here) == {"rpm": 50_000}
    found = await here.get_entity("key-1")
    assert found is not None
    assert found.name == "ours"
    assert [event.action for event in await here.get_audit_events("key-1")] == ["entity_created"]


@pytest.mark.parametrize("store_kind", EMBEDDED, indirect=True)
async def test_namespaces_count_their_usage_apart(world: World) -> None:
    here = world.repository
    await here.register_namespace("team-a")
    there = await here.namespace("team-a")
    for repository, amount in ((here, 50), (there, 5)):
        await repository.set_system_defaults([RPM])
        await take(limiter_on(repository), rpm=amount)
    await there.delete_entity("key-1")
    assert await there.get_usage_snapshots("key-1") == ([], None)
    assert (await here.get_usage_summary("key-1", window_type="daily")).total == {"rpm": 50}


async def test_closing_a_namespace_leaves_the_store_open(world: World) -> None:
    await world.repository.register_namespace("team-a")
    there = await world.repository.namespace("team-a")
    await there.close()
    await there.close()
    assert await world.repository.ping()
    assert await there.ping()


async def test_a_deleted_namespace_frees_its_name_and_keeps_its_data(world: World) -> None:
    here = world.repository
    namespace_id = await here.register_namespace("team-a")
    there = await here.namespace("team-a")
    await there.create_entity("key-1")
    world.clock.advance(3600)
    await here.delete_namespace("team-a")
    await here.delete_namespace("team-a")
    await here.delete_namespace("never-was")
    assert await here.get_namespace("team-a") is None
    with pytest.raises(NamespaceNotFoundError):
        await here.namespace("team-a")
    assert await here.list_orphan_namespaces() == [
        {"namespace_id": namespace_id, "namespace": "team-a", "deleted_at": "2024-01-01T01:00:00Z"}
    ]
    assert await there.get_entity("key-1") is not None


async def test_a_deleted_namespace_can_be_recovered_with_its_data(repository: Repository) -> None:
    namespace_id = await repository.register_namespace("team-a")
    there = await repository.namespace("team-a")
    await there.create_entity("key-1")
    await repository.delete_namespace("team-a")
    assert await repository.recover_namespace(namespace_id) == "team-a"
    again = await repository.namespace("team-a")
    assert again.namespace_id == namespace_id
    assert await again.get_entity("key-1") is not None
    assert await repository.list_orphan_namespaces() == []


async def test_a_namespace_has_its_own_on_unavailable_and_bucket_lifetime(
    repository: Repository,
) -> None:
    await repository.register_namespace("team-a")
    plain = await repository.namespace("team-a")
    await plain.set_system_defaults([RPM])
    there = await repository.namespace("team-a", on_unavailable="allow", bucket_ttl_multiplier=3)
    assert await there.get_system_defaults() == ([RPM], "allow")
    assert await repository.get_system_defaults() == ([], None)
    multipliers = [each.scope.settings.bucket_ttl_multiplier for each in (there, plain, repository)]
    assert multipliers == [3, 7, 7]


async def test_only_a_deleted_namespace_whose_name_is_free_can_be_recovered(
    repository: Repository,
) -> None:
    with pytest.raises(EntityNotFoundError):
        await repository.recover_namespace("nowhere")
    first = await repository.register_namespace("team-a")
    with pytest.raises(NamespaceStateError) as refused:
        await repository.recover_namespace(first)
    assert (refused.value.namespace_name, refused.value.state) == ("team-a", "active")
    await repository.delete_namespace("team-a")
    second = await repository.register_namespace("team-a")
    assert second != first
    with pytest.raises(NamespaceStateError) as refused:
        await repository.recover_namespace(first)
    assert refused.value.state == "re-registered"
    assert (await repository.get_namespace("team-a") or {})["namespace_id"] == second


async def test_a_purge_deletes_one_namespace_for_good(world: World) -> None:
    here = world.repository
    await here.set_system_defaults([RPM])
    await take(world.limiter(), rpm=1)
    namespace_id = await here.register_namespace("team-a")
    before = world.dump()
    there = await here.namespace("team-a")
    await there.set_system_defaults([RPM])
    await there.create_entity("key-1")
    await take(limiter_on(there), rpm=1)
    with pytest.raises(NamespaceStateError) as refused:
        await here.purge_namespace(namespace_id)
    assert refused.value.state == "active"
    assert await there.get_entity("key-1") is not None
    await here.delete_namespace("team-a")
    await here.purge_namespace(namespace_id)
    assert await here.list_orphan_namespaces() == []
    # Its audit events alone are left: registered, deleted, purged.
    assert world.dump().count(namespace_id) == 3
    assert await balance(here) == {"rpm": 99_000}
    await here.purge_namespace(namespace_id)
    with pytest.raises(EntityNotFoundError):
        await here.recover_namespace(namespace_id)
    assert await here.register_namespace("team-a") != namespace_id
    assert before.count("key-1") == world.dump().count("key-1")


async def test_every_change_of_a_namespace_has_an_audit_event_that_outlives_it(
    repository: Repository,
) -> None:
    namespace_id = await repository.register_namespace("team-a", principal="ada")
    await repository.register_namespaces(["team-b", "team-a"], principal="bob")
    for _ in range(2):
        await repository.delete_namespace("team-a", principal="carl")
    await repository.recover_namespace(namespace_id, principal="dora")
    await repository.delete_namespace("team-a")
    for _ in range(2):
        await repository.purge_namespace(namespace_id, principal="emil")
    events = await repository.get_audit_events("$NAMESPACE:team-a")
    assert [(event.action, event.principal) for event in reversed(events)] == [
        ("namespace_registered", "ada"),
        ("namespace_deleted", "carl"),
        ("namespace_recovered", "dora"),
        ("namespace_deleted", None),
        ("namespace_purged", "emil"),
    ]
    assert all(event.details == {"namespace_id": namespace_id} for event in events)
    (made,) = await repository.get_audit_events("$NAMESPACE:team-b")
    assert made.principal == "bob"


async def test_changes_of_a_namespace_that_fail_have_no_audit_event(repository: Repository) -> None:
    namespace_id = await repository.register_namespace("team-a")
    for change in (repository.recover_namespace, repository.purge_namespace):
        with pytest.raises(NamespaceStateError):
            await change(namespace_id)
    with pytest.raises(ValidationError, match="principal"):
        await repository.delete_namespace("team-a", principal="a b")
    assert await repository.get_namespace("team-a") is not None
    assert len(await repository.get_audit_events("$NAMESPACE:team-a")) == 1


async def test_a_namespace_that_is_made_by_opening_it_has_no_audit_event(
    repository: Repository,
) -> None:
    assert await repository.get_audit_events("$NAMESPACE:default") == []


@pytest.mark.parametrize("store_kind", SHARED, indirect=True)
async def test_open_makes_the_namespace_and_connect_never_does(world: World) -> None:
    with pytest.raises(NamespaceNotFoundError):
        await connect_repository(world.driver, "team-a", url=world.url)
    opened = await world.open("team-a")
    async with await connect_repository(world.driver, "team-a", url=world.url) as connected:
        assert connected.namespace_id == opened.namespace_id
    await world.repository.delete_namespace("team-a")
    with pytest.raises(NamespaceNotFoundError):
        await connect_repository(world.driver, "team-a", url=world.url)


@pytest.mark.parametrize("store_kind", SHARED, indirect=True)
async def test_open_makes_no_new_namespace_where_a_deleted_one_waits(world: World) -> None:
    here, opened = world.repository, await world.open("team-a")
    await here.delete_namespace("team-a")
    with pytest.raises(NamespaceStateError, match="recover it, or register the name anew") as gone:
        await world.open("team-a")
    assert (gone.value.namespace_name, gone.value.state) == ("team-a", "deleted")
    made = await here.register_namespace("team-a")
    assert (await world.open("team-a")).namespace_id == made != opened.namespace_id
    await here.delete_namespace("team-a")
    for namespace_id in (made, opened.namespace_id):
        await here.purge_namespace(namespace_id)
    assert (await world.open("team-a")).namespace_id not in (made, opened.namespace_id)
