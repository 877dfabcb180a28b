"""A table is created and deleted, and has a version record."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.drivers import ADMIN_DRIVERS, EMBEDDED, Driver, StoreKind, World, take
from zae_limiter import InfrastructureError, Limit, RateLimiter, Repository, ValidationError

RPM = Limit.per_minute("rpm", 10)


@pytest.fixture
def driver(store_kind: StoreKind) -> Driver:
    return ADMIN_DRIVERS[store_kind]


async def test_a_deleted_table_is_empty_when_it_is_made_again(
    world: World, repository: Repository, limiter: RateLimiter
) -> None:
    await repository.register_namespaces(["other", "deleted"])
    await repository.delete_namespace("deleted")
    await repository.set_system_defaults([RPM])
    await repository.create_entity("key-1")
    await take(limiter, rpm=4)
    for _ in range(2):
        await repository.delete_table()
    for _ in range(2):
        await repository.create_table()
    assert await repository.list_namespaces() == []
    assert await repository.list_orphan_namespaces() == []
    assert await repository.get_entity("key-1") is None
    assert await repository.get_system_limits() == []
    assert await repository.get_buckets("key-1") == []
    if world.is_shared:
        await repository.register_namespace("default")
        again = await world.open()
        assert await again.get_audit_events("key-1") == []
    assert await repository.get_audit_events("$NAMESPACE:deleted") == []


async def test_limits_of_a_deleted_table_are_not_cached(
    repository: Repository, limiter: RateLimiter
) -> None:
    await repository.set_system_defaults([RPM])
    await take(limiter, rpm=4)
    await repository.delete_table()
    await repository.create_table()
    with pytest.raises(ValidationError, match="no limits"):
        await take(limiter, rpm=4)


@pytest.mark.parametrize("store_kind", EMBEDDED, indirect=True)
async def test_an_embedded_store_has_no_version_record(repository: Repository) -> None:
    assert await repository.get_version_record() is None
    with pytest.raises(InfrastructureError, match="has no version record"):
        await repository.set_version_record("1.0.0")


@pytest.mark.parametrize("store_kind", ["dynamodb"], indirect=True)
async def test_the_version_record_of_a_table_is_made_and_replaced(
    repository: Repository,
) -> None:
    assert await repository.get_version_record() is None
    await repository.create_table()
    made = await repository.get_version_record()
    assert made is not None
    assert made.pop("updated_at").endswith("Z")
    assert made == {
        "schema_version": "0.10.0",
        "lambda_version": None,
        "client_min_version": "0.0.0",
        "updated_by": None,
    }
    await repository.set_version_record("1.0.0", "0.17.0", "0.5.0", "deploy")
    changed = await repository.get_version_record()
    assert changed is not None
    versions = (changed["schema_version"], changed["lambda_version"], changed["client_min_version"])
    assert (*versions, changed["updated_by"]) == ("1.0.0", "0.17.0", "0.5.0", "deploy")
    await repository.set_version_record("1.0.1")
    replaced = await repository.get_version_record()
    assert replaced is not None
    assert (replaced["lambda_version"], replaced["client_min_version"]) == (None, "0.0.0")


@pytest.mark.parametrize(
    "bad", [{"schema_version": None}, {"lambda_version": 3}, {"updated_by": b"me"}], ids=str
)
async def test_a_version_that_is_no_text_is_refused(
    repository: Repository, bad: dict[str, Any]
) -> None:
    (field,) = bad
    with pytest.raises(ValidationError) as raised:
        await repository.set_version_record(**{"schema_version": "1.0.0", **bad})
    assert raised.value.field == field
