"""Bad input is refused by name, before anything is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests.support.drivers import ADMIN_DRIVERS, Driver, StoreKind, World, take
from zae_limiter import (
    InvalidIdentifierError,
    InvalidNameError,
    Limit,
    OnUnavailable,
    RateLimiter,
    ValidationError,
)

RPM = Limit.per_minute("rpm", 100)
LONE_SURROGATE = "\ud800"

BAD_IDS: list[Any] = [
    "",
    "a#b",
    "#",
    "x" * 257,
    "_a",
    "-a",
    "a b",
    "a\n",
    "é",
    LONE_SURROGATE,
    f"a{LONE_SURROGATE}",
    None,
    5,
    b"bytes",
    ["list"],
]
BAD_RESOURCES: list[Any] = [
    "",
    "a#b",
    "x" * 65,
    "1abc",
    "_default_",
    "a b",
    "ü",
    f"a{LONE_SURROGATE}",
    None,
    5,
    b"bytes",
    {"a": 1},
]
BAD_LIMIT_NAMES: list[Any] = [
    "",
    "wcu",
    "a#b",
    "x" * 65,
    "1rpm",
    "a/b",
    f"a{LONE_SURROGATE}",
    None,
    5,
    b"rpm",
    ("rpm",),
]
BAD_AMOUNTS: list[Any] = [-1, 1.0, 0.5, float("nan"), True, "1", None, [1], 10**15 + 1]
BAD_CONSUMES: list[Any] = [None, 5, "rpm", ["rpm"], [("rpm", 1)], {"rpm"}]


@pytest.fixture
def driver(store_kind: StoreKind) -> Driver:
    return ADMIN_DRIVERS[store_kind]


async def prepared(world: World) -> RateLimiter:
    limiter = world.limiter()
    await world.repository.set_system_defaults([RPM])
    await world.repository.create_entity("key-1")
    await take(limiter, rpm=10)
    return limiter


async def carried_out(call: Callable[[], Any]) -> None:
    result = call()
    await (result if isinstance(result, Awaitable) else result.__aenter__())


@dataclass
class Refused:
    """Calls that must raise this error, name the field, and change nothing."""

    world: World
    error: type[ValidationError] = ValidationError

    async def __call__(self, field: str, *calls: Callable[[], Any]) -> None:
        before = self.world.dump()
        for call in calls:
            with pytest.raises(self.error) as raised:
                await carried_out(call)
            error = raised.value
            assert (error.field, bool(error.reason)) == (field, True), error
            str(error).encode()
            assert self.world.dump() == before, f"{error} came too late"


async def test_a_bad_entity_id_is_refused_everywhere(world: World) -> None:
    limiter = await prepared(world)
    refused = Refused(world, InvalidIdentifierError)
    for entity_id in BAD_IDS:
        await refused("entity_id", *identified(limiter, entity_id))
        await refused("parent_id", partial(limiter.get_children, entity_id))
        if entity_id is None:
            continue
        await refused("entity_id", partial(limiter.get_usage_snapshots, entity_id))
        await refused("parent_id", partial(limiter.create_entity, "new", parent_id=entity_id))
        await refused("principal", partial(limiter.set_limits, "key-1", [RPM], principal=entity_id))


def identified(limiter: RateLimiter, entity_id: Any) -> list[Callable[[], Any]]:
    """Every call that takes an entity id."""
    repository = limiter.repository
    return [
        partial(limiter.acquire, entity_id, "gpt-4", {"rpm": 1}),
        partial(limiter.available, entity_id, "gpt-4"),
        partial(limiter.time_until_available, entity_id, "gpt-4", {}),
        partial(limiter.create_entity, entity_id),
        partial(limiter.get_entity, entity_id),
        partial(limiter.update_entity, entity_id, name="x"),
        partial(limiter.delete_entity, entity_id),
        partial(limiter.set_limits, entity_id, [RPM]),
        partial(limiter.get_limits, entity_id),
        partial(limiter.delete_limits, entity_id),
        partial(repository.resolve_limits, entity_id, "gpt-4"),
        partial(repository.get_bucket, entity_id, "gpt-4", "rpm"),
        partial(repository.get_buckets, entity_id),
    ]


async def test_a_bad_resource_is_refused_everywhere(world: World) -> None:
    limiter = await prepared(world)
    refused = Refused(world, InvalidNameError)
    for resource in BAD_RESOURCES:
        await refused(
            "resource",
            partial(limiter.acquire, "key-1", resource, {"rpm": 1}),
            partial(limiter.available, "key-1", resource),
            partial(limiter.set_resource_defaults, resource, [RPM]),
            partial(limiter.get_resource_defaults, resource),
            partial(limiter.delete_resource_defaults, resource),
            partial(limiter.get_resource_capacity, resource, "rpm"),
            partial(limiter.repository.get_resource_buckets, resource),
        )
        if resource != "_default_":
            await refused(
                "resource",
                partial(limiter.set_limits, "key-1", [RPM], resource),
                partial(limiter.get_limits, "key-1", resource),
                partial(limiter.delete_limits, "key-1", resource),
                partial(limiter.list_entities_with_custom_limits, resource),
                partial(limiter.repository.resolve_limits, "key-1", resource),
            )


async def test_a_bad_limit_name_is_refused_everywhere(world: World) -> None:
    limiter = await prepared(world)
    refused = Refused(world, InvalidNameError)
    for name in BAD_LIMIT_NAMES:
        await refused("consume", partial(limiter.acquire, "key-1", "gpt-4", {name: 1}))
        await refused("needed", partial(limiter.time_until_available, "key-1", "gpt-4", {name: 1}))
        await refused("limit_name", partial(limiter.get_resource_capacity, "gpt-4", name))
        await refused("name", partial(Limit.per_minute, name, 5))


async def test_a_bad_amount_is_refused_everywhere(world: World) -> None:
    limiter, refused = await prepared(world), Refused(world)
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}) as lease:
        for amount in BAD_AMOUNTS:
            bad: dict[str, Any] = {"rpm": amount}
            await refused("consume['rpm']", partial(limiter.acquire, "key-1", "gpt-4", bad))
            await refused(
                "needed['rpm']", partial(limiter.time_until_available, "key-1", "gpt-4", bad)
            )
            await refused("consume['rpm']", partial(lease.consume, **bad))
            if amount != -1:
                await refused("adjust['rpm']", partial(lease.adjust, **bad))
                await refused("release['rpm']", partial(lease.release, **bad))
        assert lease.consumed == {"rpm": 1}


async def test_a_consume_that_is_no_mapping_is_refused(world: World) -> None:
    limiter, refused = await prepared(world), Refused(world)
    for consume in BAD_CONSUMES:
        await refused("consume", partial(limiter.acquire, "key-1", "gpt-4", consume))
        await refused("needed", partial(limiter.time_until_available, "key-1", "gpt-4", consume))


async def test_a_consume_that_names_no_limit_is_refused(world: World) -> None:
    limiter, refused = await prepared(world), Refused(world)
    for amount in (1, 0):
        unknown = {"rpm": 1, "tpm": amount}
        await refused(
            "consume",
            partial(limiter.acquire, "key-1", "gpt-4", unknown),
            partial(limiter.acquire, "key-1", "gpt-4", unknown, [RPM]),
            partial(limiter.acquire, "key-1", "gpt-4", unknown, timeout=5),
        )
        await refused("needed", partial(limiter.time_until_available, "key-1", "gpt-4", unknown))
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}) as lease:
        await refused("consume", partial(lease.consume, tpm=1, rpm=1))
        await refused("adjust", partial(lease.adjust, tpm=1, rpm=1))
        await refused("release", partial(lease.release, tpm=1, rpm=1))


BAD_LIMITS: list[Any] = [[], (), "rpm", RPM, {"rpm": RPM}, [RPM, RPM], [RPM, "tpm"], [None], 5]


async def test_bad_limits_are_refused_everywhere(world: World) -> None:
    limiter, refused = await prepared(world), Refused(world)
    for limits in BAD_LIMITS:
        await refused(
            "limits",
            partial(limiter.acquire, "key-1", "gpt-4", {}, limits),
            partial(limiter.available, "key-1", "gpt-4", limits),
            partial(limiter.time_until_available, "key-1", "gpt-4", {}, limits),
            partial(limiter.set_resource_defaults, "gpt-4", limits),
            partial(limiter.set_system_defaults, limits),
            partial(limiter.repository.set_system_defaults, limits),
        )
        if limits not in ([], ()):
            await refused("limits", partial(limiter.set_limits, "key-1", limits))
        await refused("default_limits", partial(world.limiter, default_limits=limits))


async def test_more_limits_than_an_item_can_carry_are_refused(world: World) -> None:
    limiter, refused = await prepared(world), Refused(world)
    limits = [Limit.per_minute(f"limit-{number}", 1) for number in range(33)]
    await refused("limits", partial(limiter.set_limits, "key-1", limits))
    await limiter.set_limits("key-1", limits[:32])
    async with limiter.acquire("key-1", "gpt-4", {limit.name: 1 for limit in limits[:32]}):
        pass


BAD_CALLS: list[tuple[str, Callable[[Any], Any]]] = [
    ("timeout", lambda x: x.acquire("key-1", "gpt-4", {}, timeout=-1)),
    ("timeout", lambda x: x.acquire("key-1", "gpt-4", {}, timeout="1")),
    ("timeout", lambda x: x.acquire("key-1", "gpt-4", {}, timeout=True)),
    ("timeout", lambda x: x.acquire("key-1", "gpt-4", {}, timeout=float("nan"))),
    ("timeout", lambda x: x.acquire("key-1", "gpt-4", {}, timeout=float("inf"))),
    ("on_unavailable", lambda x: x.acquire("key-1", "gpt-4", {}, on_unavailable="maybe")),
    ("on_unavailable", lambda x: x.acquire("key-1", "gpt-4", {}, on_unavailable=5)),
    ("on_unavailable", lambda x: x.set_system_defaults([RPM], "maybe")),
    ("on_unavailable", lambda x: x.set_system_defaults([RPM], ["allow"])),
    ("name", lambda x: x.create_entity("new", name=5)),
    ("name", lambda x: x.create_entity("new", name="x" * 1025)),
    ("name", lambda x: x.create_entity("new", name=LONE_SURROGATE)),
    ("cascade", lambda x: x.create_entity("new", parent_id="org", cascade="yes")),
    ("cascade", lambda x: x.create_entity("new", cascade=1)),
    ("metadata", lambda x: x.create_entity("new", metadata="x")),
    ("metadata", lambda x: x.create_entity("new", metadata=[])),
    ("metadata", lambda x: x.create_entity("new", metadata=0)),
    ("metadata", lambda x: x.create_entity("new", metadata={str(n): "" for n in range(65)})),
    ("metadata key", lambda x: x.create_entity("new", metadata={5: "x"})),
    ("metadata key", lambda x: x.create_entity("new", metadata={LONE_SURROGATE: "x"})),
    ("metadata['a']", lambda x: x.create_entity("new", metadata={"a": b"x"})),
    ("metadata['a']", lambda x: x.create_entity("new", metadata={"a": float("nan")})),
    ("metadata['a']", lambda x: x.create_entity("new", metadata={"a": 10**38})),
    ("metadata['a']", lambda x: x.create_entity("new", metadata={"a": LONE_SURROGATE})),
    ("name", lambda x: x.update_entity("key-1", name=5)),
    ("name", lambda x: x.update_entity("nobody", name=5)),
    ("resource", lambda x: x.repository.get_bucket("key-1", "a#b", "rpm")),
    ("metadata", lambda x: x.update_entity("key-1", metadata=[])),
    ("expected_version", lambda x: x.update_entity("key-1", name="x", expected_version="1")),
    ("expected_version", lambda x: x.update_entity("key-1", name="x", expected_version=True)),
    ("expected_version", lambda x: x.update_entity("key-1", name="x", expected_version=1.0)),
    ("limit", lambda x: x.get_audit_events("key-1", limit=0)),
    ("limit", lambda x: x.get_audit_events("key-1", limit=1001)),
    ("limit", lambda x: x.get_audit_events("key-1", limit="5")),
    ("limit", lambda x: x.get_audit_events("key-1", limit=True)),
    ("entity_id", lambda x: x.get_audit_events(5)),
    ("entity_id", lambda x: x.get_audit_events(LONE_SURROGATE)),
    ("start_event_id", lambda x: x.get_audit_events("key-1", start_event_id=5)),
    ("start_event_id", lambda x: x.get_audit_events("key-1", start_event_id=LONE_SURROGATE)),
    ("limit", lambda x: x.list_entities_with_custom_limits("gpt-4", 0)),
    ("prefix", lambda x: x.list_entities("no#hash")),
    ("parent_id", lambda x: x.list_entities(parent_id="no#hash")),
    ("limit", lambda x: x.list_entities(limit=0)),
    ("cursor", lambda x: x.list_entities(cursor="no#hash")),
    ("cursor", lambda x: x.list_entities("key-", cursor="org")),
    ("cursor", lambda x: x.list_entities_with_custom_limits("gpt-4", 5, 5)),
    ("cursor", lambda x: x.list_entities_with_custom_limits("gpt-4", 5, LONE_SURROGATE)),
    ("limit", lambda x: x.get_usage_snapshots("key-1", limit=0)),
    ("next_key", lambda x: x.get_usage_snapshots("key-1", next_key="5")),
    ("next_key", lambda x: x.get_usage_snapshots("key-1", next_key={})),
    ("next_key", lambda x: x.get_usage_snapshots("key-1", next_key={"cursor": "-1"})),
    ("next_key", lambda x: x.get_usage_snapshots("key-1", next_key={"cursor": "²"})),
    ("window_type", lambda x: x.get_usage_snapshots("key-1", window_type="weekly")),
    ("resource", lambda x: x.get_usage_snapshots(resource="a#b")),
    ("start_time", lambda x: x.repository.get_usage_snapshots("key-1", start_time="yesterday")),
    (
        "start_time",
        lambda x: x.get_usage_snapshots("key-1", start_time="0001-01-01T00:00:00+14:00"),
    ),
    ("end_time", lambda x: x.get_usage_snapshots("key-1", end_time="9999-12-31T23:00:00-12:00")),
    ("end_time", lambda x: x.repository.get_usage_summary("key-1", end_time=5)),
    ("start_time", lambda x: x.get_usage_snapshots("key-1", start_time="soon")),
    ("end_time", lambda x: x.get_usage_summary("key-1", end_time=5)),
    ("namespace", lambda x: x.repository.register_namespace("")),
    ("namespace", lambda x: x.repository.register_namespace("_")),
    ("namespace", lambda x: x.repository.register_namespace("a#b")),
    ("namespace", lambda x: x.repository.register_namespace(LONE_SURROGATE)),
    ("namespace", lambda x: x.repository.register_namespaces(["good", ""])),
    ("namespace", lambda x: x.repository.namespace("a b")),
    ("namespace", lambda x: x.repository.delete_namespace(None)),
    ("namespace", lambda x: x.repository.get_namespace("a#b")),
    ("namespace", lambda x: x.repository.get_namespace(LONE_SURROGATE)),
    ("namespace", lambda x: x.repository.get_namespace(None)),
    ("namespace_id", lambda x: x.repository.recover_namespace(5)),
    ("principal", lambda x: x.repository.register_namespace("good", "a b")),
    ("principal", lambda x: x.repository.register_namespaces(["good"], "a b")),
    ("principal", lambda x: x.repository.delete_namespace("good", "a b")),
    ("principal", lambda x: x.repository.recover_namespace("some-id", "a b")),
    ("principal", lambda x: x.repository.purge_namespace("some-id", "a b")),
    ("namespace_id", lambda x: x.repository.purge_namespace(LONE_SURROGATE)),
    ("limit_name", lambda x: x.repository.get_resource_buckets("gpt-4", 5)),
    ("limit_name", lambda x: x.repository.get_bucket("key-1", "gpt-4", "a#b")),
    ("shard_id", lambda x: x.repository.get_bucket("key-1", "gpt-4", "rpm", -1)),
    ("shard_id", lambda x: x.repository.get_buckets("key-1", shard_id="0")),
    ("on_unavailable", lambda x: x.repository.namespace("default", on_unavailable="maybe")),
    ("bucket_ttl_multiplier", lambda x: x.repository.namespace("a", bucket_ttl_multiplier=1.5)),
]


async def test_bad_arguments_are_refused(world: World) -> None:
    limiter, refused = await prepared(world), Refused(world)
    for field, call in BAD_CALLS:
        await refused(field, partial(call, limiter))


async def test_a_bad_mode_of_the_limiter_is_refused(world: World) -> None:
    await Refused(world)("on_unavailable", partial(world.limiter, on_unavailable="maybe"))
    for mode in ("allow", OnUnavailable.BLOCK, None):
        world.limiter(on_unavailable=mode)


async def test_usage_without_entity_and_resource_is_refused(limiter: RateLimiter) -> None:
    with pytest.raises(ValueError, match="entity_id"):
        await limiter.get_usage_snapshots()
