"""The public interface on a DynamoDB table, by both facades and both transports."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal, get_args

import pytest

from tests.support.drivers import Driver, connect_repository, limiter_on, open_repository
from tests.support.dynamodb import new_name
from tests.support.servers.processes import Server
from tests.support.servers.tables import PATIENT
from zae_limiter import Limit, RateLimitExceeded, Repository, UsageSnapshot
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.backends.dynamodb.url import dynamodb_url
from zae_limiter.backends.dynamodb.wire.values import to_item
from zae_limiter.core.exceptions import (
    EntityExistsError,
    InfrastructureNotFoundError,
    NamespaceNotFoundError,
    ValidationError,
)

Transport = Literal["wire", "botocore"]
LIMITS = [Limit.per_minute("rpm", 3), Limit.per_hour("tpm", 100)]


@pytest.fixture(params=get_args(Driver))
def facade(request: pytest.FixtureRequest) -> Driver:
    chosen: Driver = request.param
    return chosen


@pytest.fixture(params=get_args(Transport))
def place(request: pytest.FixtureRequest, dynamodb: Server) -> dict[str, Any]:
    """Where and how to open a stack."""
    return {
        "stack": new_name(),
        "region": dynamodb.region,
        "endpoint_url": dynamodb.url,
        "transport": request.param,
        "connect_timeout": PATIENT.connect_timeout_s,
        "read_timeout": PATIENT.read_timeout_s,
    }


@pytest.fixture
async def repository(facade: Driver, place: dict[str, Any]) -> AsyncIterator[Repository]:
    opened = await open_repository(facade, **place)
    yield opened
    await opened.close()


async def test_a_stack_is_made_found_again_and_used(
    repository: Repository, facade: Driver, place: dict[str, Any], dynamodb: Server
) -> None:
    assert (repository.stack_name, repository.table_name) == (place["stack"], place["stack"])
    assert (repository.region, repository.endpoint_url) == (dynamodb.region, dynamodb.url)
    assert await repository.ping()
    await repository.create_entity("org")
    await repository.create_entity("key-1", parent_id="org", cascade=True)
    await repository.set_system_defaults(LIMITS, on_unavailable="allow")
    limiter = limiter_on(repository)
    for _ in range(3):
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 5}):
            pass
    with pytest.raises(RateLimitExceeded):
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
            pass
    again = await connect_repository(facade, **place)
    assert again.namespace_id == repository.namespace_id
    tokens = {state.limit_name: state.tokens for state in await again.get_buckets("org")}
    assert tokens == {"rpm": 0, "tpm": 85}
    assert [child.id for child in await again.get_children("org")] == ["key-1"]
    with pytest.raises(EntityExistsError):
        await again.create_entity("key-1")
    await again.close()


async def test_connecting_makes_nothing(
    facade: Driver, place: dict[str, Any], dynamodb: Server
) -> None:
    for _ in range(2):
        with pytest.raises(InfrastructureNotFoundError, match="zae-limiter deploy"):
            await connect_repository(facade, **place)
    opened = await open_repository(facade, **place)
    with pytest.raises(NamespaceNotFoundError):
        await connect_repository(facade, "team", **place)
    assert await opened.get_namespace("team") is None
    await opened.close()


async def test_a_url_says_the_same(
    repository: Repository, facade: Driver, place: dict[str, Any]
) -> None:
    url = dynamodb_url(place["stack"], place["region"], place["endpoint_url"])
    again = await open_repository(facade, url=url)
    assert again.namespace_id == repository.namespace_id
    assert again.stack_name == place["stack"]
    scoped = await again.namespace("default")
    assert (scoped.region, scoped.table_name) == (place["region"], place["stack"])
    await again.close()


async def test_namespaces_of_a_stack_are_kept_apart(repository: Repository) -> None:
    await repository.register_namespaces(["a", "b"])
    team = await repository.namespace("a")
    await team.set_limits("key-1", LIMITS, "gpt-4")
    assert await (await repository.namespace("b")).get_limits("key-1", "gpt-4") == []
    await repository.delete_namespace("a")
    (orphan,) = await repository.list_orphan_namespaces()
    await repository.purge_namespace(orphan["namespace_id"])
    assert await team.get_limits("key-1", "gpt-4") == []
    assert [each["name"] for each in await repository.list_namespaces()] == ["b", "default"]


async def test_usage_is_read_in_pages(repository: Repository) -> None:
    store: Any = repository.scope.store
    assert isinstance(store, DynamoStore)
    pk = f"{repository.namespace_id}/ENTITY#key-1"
    for hour in range(3):
        start = f"2024-01-01T{hour:02}:00:00Z"
        values = {"entity_id": "key-1", "resource": "gpt-4", "window": "hourly", "rpm": hour + 1}
        keys = {"PK": pk, "SK": f"#USAGE#gpt-4#{start}", "window_start": start}
        await store.table.put(to_item({**keys, **values, "total_events": 1}))
    found: list[UsageSnapshot] = []
    next_key = None
    while True:
        page, next_key = await repository.get_usage_snapshots("key-1", limit=2, next_key=next_key)
        found += page
        if next_key is None:
            break
    assert [snap.counters["rpm"] for snap in found] == [3, 2, 1]
    assert (await repository.get_usage_summary("key-1")).total == {"rpm": 6}


@pytest.mark.parametrize("options", [{"transport": "carrier-pigeon"}, {"endpoint_url": "nowhere"}])
async def test_bad_arguments_are_refused(
    facade: Driver, place: dict[str, Any], options: dict[str, Any]
) -> None:
    (field,) = options
    with pytest.raises(ValidationError) as raised:
        await open_repository(facade, **{**place, **options})
    assert raised.value.field == field
