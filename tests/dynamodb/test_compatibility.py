"""A table of the existing package is served by ours, and still by that package afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, get_args

import boto3
import pytest

from tests.support.drivers import Driver, balance, limiter_on, open_repository
from tests.support.dynamodb import new_name
from tests.support.peer.client import Peer, PeerError
from tests.support.servers.processes import Server
from zae_limiter import (
    Limit,
    OnUnavailable,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    StoredDataError,
)
from zae_limiter.core.audit import AuditEvent
from zae_limiter.core.bucket import Bucket, BucketAddress
from zae_limiter.core.shards import sums_to_one
from zae_limiter.core.writes import Adjust, Granted, Take
from zae_limiter.flows.shards.items import read_all, split_shard

pytestmark = pytest.mark.slow

# Slow enough that nothing refills while a test runs.
day = Limit.per_day


@pytest.fixture(params=get_args(Driver))
async def ours(
    request: pytest.FixtureRequest, dynamodb: Server, table_name: str, peer: Peer
) -> AsyncIterator[Repository]:
    """Our repository in the same table, by either driver. Configuration is never cached."""
    peer.repository("ping")
    repository = await open_repository(
        request.param,
        stack=table_name,
        region=dynamodb.region,
        endpoint_url=dynamodb.url,
        config_cache_ttl=0,
        refusal_cache_ttl=0,
    )
    yield repository
    await repository.close()


@pytest.fixture
def limiter(ours: Repository) -> RateLimiter:
    return limiter_on(ours)


@pytest.fixture
def name() -> str:
    """An entity that no other test has."""
    return f"e-{new_name().removeprefix('zael-')[:10]}"


async def take(limiter: RateLimiter, entity_id: str, resource: str, **amounts: int) -> bool:
    try:
        async with limiter.acquire(entity_id, resource, amounts):
            return True
    except RateLimitExceeded:
        return False


async def items(repository: Repository, entity_id: str, resource: str) -> dict[int, Bucket]:
    """The items of a bucket by shard."""
    store = repository.scope.store
    found = await store.buckets.of_entity(repository.namespace_id, entity_id)
    return {a.shard: bucket for a, bucket in found.items() if a.resource == resource}


def describe(event: AuditEvent | dict[str, Any]) -> tuple[Any, ...]:
    """What both packages say of an audit event."""
    told = event if isinstance(event, dict) else event.to_dict()
    names = ("event_id", "timestamp", "action", "entity_id", "principal", "resource")
    return (*(told.get(each) for each in names), told.get("details") or {})


def test_the_table_is_the_package_s_own(
    peer: Peer, dynamodb: Server, table_name: str, caller: None
) -> None:
    """Its indexes project more than ours need."""
    client = boto3.client("dynamodb", region_name=dynamodb.region, endpoint_url=dynamodb.url)
    found = client.describe_table(TableName=table_name)["Table"]
    projected = {
        index["IndexName"]: index["Projection"]["ProjectionType"]
        for index in found["GlobalSecondaryIndexes"]
    }
    assert projected == {"GSI1": "ALL", "GSI2": "ALL", "GSI3": "KEYS_ONLY", "GSI4": "KEYS_ONLY"}
    assert peer.repository("get_version_record")["updated_by"] == "client:0.17.0"


async def test_namespaces_are_the_same(peer: Peer, ours: Repository, name: str) -> None:
    theirs = peer.repository("register_namespace", f"ns-{name}")
    assert await ours.register_namespace(f"ns-{name}") == theirs
    assert ours.namespace_id == peer.repository("get_namespace", "default")["namespace_id"]
    made = await ours.register_namespace(f"our-{name}")
    assert peer.repository("register_namespace", f"our-{name}") == made
    found = {each["name"]: each["namespace_id"] for each in await ours.list_namespaces()}
    told = {each["name"]: each["namespace_id"] for each in peer.repository("list_namespaces")}
    assert found == told
    assert found[f"ns-{name}"] == theirs


async def test_a_namespace_that_one_deletes_the_other_recovers_and_purges(
    peer: Peer, ours: Repository, name: str
) -> None:
    by_them = peer.repository("register_namespace", f"a-{name}")
    by_us = await ours.register_namespace(f"b-{name}")
    peer.repository("delete_namespace", f"a-{name}")
    await ours.delete_namespace(f"b-{name}")
    assert {by_them, by_us} <= {o["namespace_id"] for o in await ours.list_orphan_namespaces()}
    told = peer.repository("list_orphan_namespaces")
    assert {by_them, by_us} <= {each["namespace_id"] for each in told}
    assert await ours.recover_namespace(by_them) == f"a-{name}"
    assert peer.repository("recover_namespace", by_us) == f"b-{name}"
    peer.limiter("set_system_defaults", [day("rpm", 5)], namespace=f"a-{name}")
    peer.take("key", "gpt-4", rpm=1, namespace=f"a-{name}")
    await ours.delete_namespace(f"a-{name}")
    await ours.purge_namespace(by_them)
    assert await ours.get_namespace(f"a-{name}") is None
    peer.repository("delete_namespace", f"b-{name}")
    peer.repository("purge_namespace", by_us)
    assert by_us not in {each["namespace_id"] for each in await ours.list_orphan_namespaces()}


def by_name(limits: list[Limit] | None) -> dict[str, Limit]:
    return {limit.name: limit for limit in limits or ()}


async def test_limits_of_all_levels_resolve_alike(
    peer: Peer, ours: Repository, limiter: RateLimiter, name: str
) -> None:
    odd = [day("tokens.in-flight", 7), Limit("rpm", 20, 10, 3)]
    resource = f"llama-3.1/70b:{name[2:]}"
    cases = [(name, "gpt-9"), (name, resource), (f"{name}x", resource), (f"{name}x", "gpt-9")]

    async def agree(*sources: str | None) -> None:
        for (entity_id, asked), source in zip(cases, sources, strict=True):
            limits, on_unavailable, told = peer.repository("resolve_limits", entity_id, asked)
            found = await ours.resolve_limits(entity_id, asked)
            assert told == source
            assert found[1:] == (on_unavailable, told)
            assert by_name(found[0]) == by_name(limits)

    peer.limiter("set_system_defaults", [day("rpm", 100), day("tpm", 10_000)])
    await agree("system", "system", "system", "system")
    peer.limiter("set_resource_defaults", resource, odd)
    await agree("system", "resource", "resource", "system")
    await limiter.set_limits(name, [day("rpm", 3)])
    await agree("entity_default", "entity_default", "resource", "system")
    peer.limiter("set_limits", name, odd, resource)
    await agree("entity_default", "entity", "resource", "system")
    assert await ours.list_resources_with_defaults() == peer.limiter("list_resources_with_defaults")
    listed = await ours.list_entities_with_custom_limits(resource)
    assert list(listed) == peer.limiter("list_entities_with_custom_limits", resource)
    assert listed[0] == [name]
    told = peer.limiter("list_resources_with_entity_configs")
    assert await ours.list_resources_with_entity_configs() == told
    assert resource in told
    await limiter.delete_limits(name, resource)
    await agree("entity_default", "entity_default", "resource", "system")
    peer.limiter("delete_limits", name)
    await limiter.delete_resource_defaults(resource)
    await agree("system", "system", "system", "system")
    assert resource not in peer.limiter("list_resources_with_entity_configs")


async def test_the_stored_mode_for_outages_is_shared_with_the_existing_package(
    peer: Peer, ours: Repository, limiter: RateLimiter
) -> None:
    peer.repository("set_system_defaults", [day("rpm", 100)], on_unavailable="allow")
    assert await ours.resolve_on_unavailable() == "allow"
    await ours.set_system_defaults([day("rpm", 100)], on_unavailable="block")
    assert peer.repository("resolve_on_unavailable") == "block"
    assert peer.repository("get_system_defaults") == [[day("rpm", 100)], "block"]


async def test_entities_and_children_are_the_same(
    peer: Peer, ours: Repository, limiter: RateLimiter, name: str
) -> None:
    peer.limiter("create_entity", name, "The parent", metadata={"tier": "gold"})
    peer.limiter("create_entity", f"{name}-a", parent_id=name, cascade=True)
    await limiter.create_entity(f"{name}-b", "B", parent_id=name, metadata={"x": "y"})
    for entity_id in (name, f"{name}-a", f"{name}-b"):
        found, told = await ours.get_entity(entity_id), peer.repository("get_entity", entity_id)
        assert found is not None
        fields = ("id", "name", "parent_id", "cascade", "metadata", "created_at")
        assert [getattr(found, field) for field in fields] == [told[field] for field in fields]
    children = [child.id for child in await ours.get_children(name)]
    assert children == [f"{name}-a", f"{name}-b"]
    assert sorted(child["id"] for child in peer.repository("get_children", name)) == children
    updated = await limiter.update_entity(f"{name}-a", name="A", metadata={"n": "1"})
    assert updated.name == "A"
    assert peer.repository("get_entity", f"{name}-a")["metadata"] == {"n": "1"}
    with pytest.raises(PeerError, match="EntityExistsError"):
        peer.limiter("create_entity", f"{name}-b")


async def test_metadata_of_any_json_value_is_shared(
    peer: Peer, ours: Repository, limiter: RateLimiter, name: str
) -> None:
    values = {"n": 1, "on": True, "none": None, "deep": {"a": ["b", 2]}}
    peer.limiter("create_entity", name, parent_id=f"{name}-org", metadata=values)
    found = await ours.get_entity(name)
    assert found is not None
    assert found.metadata == values
    (child,) = await ours.get_children(f"{name}-org")
    assert child.metadata == values
    await limiter.set_limits(name, [day("rpm", 1)])
    assert await take(limiter, name, "gpt-4", rpm=1)
    await limiter.update_entity(name, metadata={**values, "n": 2})
    assert peer.repository("get_entity", name)["metadata"] == {**values, "n": 2}


@pytest.mark.parametrize("level", ["entity", "resource"])
async def test_an_entity_or_resource_that_the_existing_package_disabled_is_refused(
    peer: Peer, limiter: RateLimiter, name: str, level: str
) -> None:
    resource = f"r{name}"
    disabled = name if level == "entity" else resource
    peer.limiter("set_limits", name, [day("rpm", 5)], resource)
    assert await take(limiter, name, resource, rpm=1)
    peer.repository(f"disable_{level}", disabled)
    for mode in OnUnavailable:
        with pytest.raises(StoredDataError, match="disabled is True"):
            async with limiter.acquire(name, resource, {"rpm": 1}, on_unavailable=mode):
                pass
    peer.repository(f"clear_{level}_disabled", disabled)
    assert await take(limiter, name, resource, rpm=1)


async def test_audit_events_of_both_are_one_trail(
    peer: Peer, ours: Repository, limiter: RateLimiter, name: str
) -> None:
    peer.limiter("create_entity", name, principal="them")
    await limiter.set_limits(name, [day("rpm", 3)], principal="us")
    peer.limiter("set_limits", name, [day("rpm", 4)], "gpt-4", principal="them")
    await limiter.delete_limits(name, principal="us")
    found = await ours.get_audit_events(name)
    assert [event.principal for event in found] == ["us", "them", "us", "them"]
    told = peer.limiter("get_audit_events", name)
    assert [describe(event) for event in told] == [describe(event) for event in found]
    page = peer.limiter("get_audit_events", name, limit=2, start_event_id=found[0].event_id)
    assert [describe(event) for event in page] == [describe(event) for event in found[1:3]]


async def test_a_bucket_of_theirs_is_charged_within_its_limits(
    peer: Peer, ours: Repository, limiter: RateLimiter, name: str
) -> None:
    peer.limiter("set_limits", name, [day("rpm", 100), day("tpm", 1000)], "gpt-4")
    assert peer.take(name, "gpt-4", rpm=30, tpm=100)
    assert peer.take(name, "gpt-4", rpm=1, tpm=0, adjust={"tpm": 50})
    assert peer.take(name, "gpt-4", rpm=5, fails=True)
    assert await balance(ours, name) == {"rpm": 69_000, "tpm": 850_000}
    assert await take(limiter, name, "gpt-4", rpm=60, tpm=800)
    assert not await take(limiter, name, "gpt-4", rpm=10)
    assert await limiter.available(name, "gpt-4") == {"rpm": 9, "tpm": 50}
    assert peer.limiter("available", name, "gpt-4") == {"rpm": 9, "tpm": 50}
    assert not peer.take(name, "gpt-4", rpm=10)
    assert peer.take(name, "gpt-4", rpm=9)
    assert not await take(limiter, name, "gpt-4", rpm=1)
    state = await ours.get_bucket(name, "gpt-4", "rpm")
    assert state is not None
    assert state.total_consumed_milli == 100_000


async def test_a_bucket_of_ours_is_charged_within_its_limits(
    peer: Peer, ours: Repository, limiter: RateLimiter, name: str
) -> None:
    await limiter.create_entity(name)
    await limiter.set_limits(name, [day("rpm", 100), day("in-out.x", 1000)], "gpt-4")
    async with limiter.acquire(name, "gpt-4", {"rpm": 30, "in-out.x": 1}) as lease:
        await _now(lease.adjust(rpm=10))
    assert peer.repository("get_bucket", name, "gpt-4", "rpm")["tokens_milli"] == 60_000
    assert peer.take(name, "gpt-4", rpm=20, adjust={"rpm": 5})
    assert peer.take(name, "gpt-4", rpm=20, fails=True)
    assert peer.take(name, "gpt-4", rpm=15, speculative=False)
    assert not peer.take(name, "gpt-4", rpm=21)
    assert await limiter.available(name, "gpt-4") == {"rpm": 20, "in-out.x": 999}
    assert await take(limiter, name, "gpt-4", rpm=20)
    assert not peer.take(name, "gpt-4", rpm=1)


async def test_a_balance_of_ours_that_waits_for_its_refill_is_none_for_them(
    peer: Peer, ours: Repository, limiter: RateLimiter, name: str
) -> None:
    """What was taken of what a bucket has gained is stored as a balance below zero."""
    await limiter.set_limits(name, [day("rpm", 100)], "gpt-4")
    assert await take(limiter, name, "gpt-4", rpm=100)
    address, store = BucketAddress(ours.namespace_id, name, "gpt-4"), ours.scope.store
    seen = (await items(ours, name, "gpt-4"))[0]
    taking = Take(
        ours.scope.io.operation_id(),
        ours.scope.io.now_ms(),
        seen.fingerprint,
        {"rpm": 5000},
        acquires=1,
        refilled_from_ms=seen.refilled_at_ms,
        refilled_until_ms=seen.refilled_at_ms,
        floors_milli={"rpm": 0},
        roofs_milli={"rpm": 0},
    )
    assert isinstance(await store.buckets.write(address, taking), Granted)
    assert peer.repository("get_bucket", name, "gpt-4", "rpm")["tokens_milli"] == -5000
    assert not peer.take(name, "gpt-4", rpm=1)
    back = Adjust(ours.scope.io.operation_id(), taking.at_ms, {"rpm": -7000}, 0)
    assert isinstance(await store.buckets.write(address, back), Granted)
    assert not peer.take(name, "gpt-4", rpm=3)
    assert peer.take(name, "gpt-4", rpm=2)
    assert not await take(limiter, name, "gpt-4", rpm=1)


async def _now(result: Any) -> None:
    if asyncio.iscoroutine(result):
        await result


async def test_the_whole_chain_is_charged_and_refunded(
    peer: Peer, ours: Repository, limiter: RateLimiter, name: str
) -> None:
    """Made by them: only its parent cascades one level further, which they do not follow."""
    peer.limiter("create_entity", f"{name}-org")
    peer.limiter("create_entity", f"{name}-team", parent_id=f"{name}-org", cascade=True)
    peer.limiter("create_entity", name, parent_id=f"{name}-team", cascade=True)
    for entity_id, capacity in ((name, 50), (f"{name}-team", 40), (f"{name}-org", 30)):
        peer.limiter("set_limits", entity_id, [day("rpm", capacity)], "gpt-4")
    assert peer.take(name, "gpt-4", rpm=5)
    assert await take(limiter, name, "gpt-4", rpm=10)
    for entity_id, left in ((name, 35_000), (f"{name}-team", 25_000), (f"{name}-org", 20_000)):
        assert await balance(ours, entity_id) == {"rpm": left}
    assert not await take(limiter, name, "gpt-4", rpm=21)
    with pytest.raises(LookupError):
        async with limiter.acquire(name, "gpt-4", {"rpm": 20}):
            raise LookupError
    assert await balance(ours, f"{name}-org") == {"rpm": 20_000}
    assert peer.take(name, "gpt-4", rpm=25)
    assert not peer.take(name, "gpt-4", rpm=1)
    assert not await take(limiter, name, "gpt-4", rpm=1)
    assert await balance(ours, name) == {"rpm": 10_000}


@pytest.mark.parametrize("cascades", [True, False])
async def test_both_at_once_admit_no_more_than_there_is(
    peer: Peer, ours: Repository, limiter: RateLimiter, name: str, cascades: bool
) -> None:
    peer.limiter("create_entity", f"{name}-org")
    peer.limiter("create_entity", name, parent_id=f"{name}-org", cascade=cascades)
    peer.limiter("set_limits", name, [day("rpm", 80)], "gpt-4")
    peer.limiter("set_limits", f"{name}-org", [day("rpm", 60)], "gpt-4")
    peer.begin("acquire_often", name, "gpt-4", {"rpm": 1}, 60, 6)
    admitted = 0
    for _ in range(60):
        admitted += await take(limiter, name, "gpt-4", rpm=1)
    admitted += peer.answer()
    assert admitted == (60 if cascades else 80)
    left = await balance(ours, name)
    assert left == {"rpm": (80 - admitted) * 1000}


async def test_limit_changes_of_one_reach_the_buckets_of_the_other(
    peer: Peer, ours: Repository, limiter: RateLimiter, name: str
) -> None:
    peer.limiter("set_limits", name, [day("rpm", 10)], "gpt-4")
    assert peer.take(name, "gpt-4", rpm=4)
    assert await take(limiter, name, "gpt-4", rpm=1)
    peer.limiter("set_limits", name, [day("rpm", 3), day("tpm", 9)], "gpt-4")
    assert await limiter.available(name, "gpt-4") == {"rpm": 3, "tpm": 9}
    assert not await take(limiter, name, "gpt-4", rpm=4)
    assert await take(limiter, name, "gpt-4", rpm=1, tpm=9)
    await limiter.set_limits(name, [day("rpm", 500)], "gpt-4")
    assert await take(limiter, name, "gpt-4", rpm=1)
    assert peer.limiter("available", name, "gpt-4") == {"rpm": 1}
    assert peer.take(name, "gpt-4", rpm=1)
    assert not peer.take(name, "gpt-4", rpm=1)


async def test_a_limit_that_they_take_away_and_bring_back_is_full_again(
    peer: Peer, ours: Repository, limiter: RateLimiter, name: str
) -> None:
    resource = f"r-{name}"
    both = [day("rpm", 10), day("tpm", 9)]
    peer.limiter("set_resource_defaults", resource, [day("rpm", 10)])
    await limiter.set_limits(name, both, resource)
    assert await take(limiter, name, resource, rpm=1, tpm=5)
    peer.limiter("delete_limits", name, resource)
    assert "tpm" not in peer.limiter("available", name, resource)
    peer.limiter("set_limits", name, both, resource)
    assert await limiter.available(name, resource) == {"rpm": 9, "tpm": 9}
    assert await take(limiter, name, resource, rpm=1, tpm=9)
    assert not await take(limiter, name, resource, tpm=1)
    assert not peer.take(name, resource, tpm=1)
    assert peer.take(name, resource, rpm=8)


async def test_resource_capacity_sees_the_buckets_of_both(
    peer: Peer, ours: Repository, limiter: RateLimiter, name: str
) -> None:
    resource = f"r-{name}"
    peer.limiter("set_resource_defaults", resource, [day("rpm", 100)])
    assert peer.take(f"{name}-a", resource, rpm=40)
    assert await take(limiter, f"{name}-b", resource, rpm=10)
    found = await limiter.get_resource_capacity(resource, "rpm")
    told = peer.limiter("get_resource_capacity", resource, "rpm")
    assert (found.total_capacity, found.total_available) == (200, 150)
    assert (told["total_capacity"], told["total_available"]) == (200, 150)
    entities = [(e.entity_id, e.available) for e in found.entities]
    assert sorted(entities) == [(f"{name}-a", 60), (f"{name}-b", 90)]


async def test_a_bucket_they_have_split_is_one_bucket(
    peer: Peer, ours: Repository, limiter: RateLimiter, name: str
) -> None:
    peer.limiter("set_limits", name, [day("rpm", 100)], "gpt-4")
    assert peer.take(name, "gpt-4", rpm=10)
    assert peer.repository("bump_shard_count", name, "gpt-4", 1) == 2
    for _ in range(12):
        assert peer.take(name, "gpt-4", rpm=1)
    split = await items(ours, name, "gpt-4")
    assert sum(item.cells["rpm"].consumed_milli for item in split.values()) == 22_000
    left = (await limiter.available(name, "gpt-4"))["rpm"]
    admitted = 0
    while admitted <= 100 and await take(limiter, name, "gpt-4", rpm=1):
        admitted += 1
    assert admitted == left <= 100
    found = await items(ours, name, "gpt-4")
    assert sums_to_one(item.shard_count for item in found.values())
    assert not peer.take(name, "gpt-4", rpm=1)


async def test_a_bucket_we_have_split_is_within_its_limits_for_them(
    peer: Peer, ours: Repository, limiter: RateLimiter, name: str
) -> None:
    await limiter.set_limits(name, [day("rpm", 100)], "gpt-4")
    assert await take(limiter, name, "gpt-4", rpm=20)
    home = BucketAddress(ours.namespace_id, name, "gpt-4")
    for _ in range(2):
        for address, item in (await read_all(ours.scope, home)).items():
            assert await split_shard(ours.scope, address, item)
    assert peer.limiter("available", name, "gpt-4") == {"rpm": 80}
    admitted = sum(peer.take(name, "gpt-4", rpm=1) for _ in range(60))
    assert 0 < admitted <= 60
    left = (await limiter.available(name, "gpt-4"))["rpm"]
    assert left == 80 - admitted
    assert await take(limiter, name, "gpt-4", rpm=left)
    assert not await take(limiter, name, "gpt-4", rpm=1)


async def test_records_of_either_package_are_deleted_by_the_other(
    peer: Peer, ours: Repository, limiter: RateLimiter, name: str
) -> None:
    async def made(entity_id: str) -> tuple[bool, bool, bool]:
        entity = await ours.get_entity(entity_id)
        return (
            entity is not None,
            bool(await ours.get_limits(entity_id, "gpt-4")),
            bool(await ours.get_buckets(entity_id)),
        )

    peer.limiter("create_entity", f"{name}-a")
    peer.limiter("set_limits", f"{name}-a", [day("rpm", 10)], "gpt-4")
    peer.take(f"{name}-a", "gpt-4", rpm=1)
    await limiter.create_entity(f"{name}-b")
    await limiter.set_limits(f"{name}-b", [day("rpm", 10)], "gpt-4")
    await take(limiter, f"{name}-b", "gpt-4", rpm=1)
    for entity_id in (f"{name}-a", f"{name}-b"):
        assert await made(entity_id) == (True, True, True)
    await limiter.delete_entity(f"{name}-a")
    peer.limiter("delete_entity", f"{name}-b")
    for entity_id in (f"{name}-a", f"{name}-b"):
        assert await made(entity_id) == (False, False, False)
        assert peer.repository("get_buckets", entity_id) == []
    actions = [event.action for event in await ours.get_audit_events(f"{name}-b")]
    assert actions == ["entity_deleted", "limits_set", "entity_created"]
