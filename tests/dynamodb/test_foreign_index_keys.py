"""Items of another tenant that name this namespace in their index keys are not seen.

IAM lets a tenant write any attribute into items under its own partition keys.
"""

from __future__ import annotations

import pytest

from tests.support.servers.tables import OwnTable
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.backends.dynamodb.wire.values import to_item
from zae_limiter.runtime.blocking import run

RPD = Limit.per_day("rpd", 100)


@pytest.fixture
def tenant(table: OwnTable) -> SyncRepository:
    """A tenant with an entity, in whose indexes another one has put an item."""
    repository = SyncRepository.open("tenant", url=table.url)
    repository.create_entity("acme")
    with SyncRateLimiter(repository, default_limits=[RPD]).acquire("acme", "gpt-4", {"rpd": 1}):
        pass
    other = SyncRepository.open("other", url=table.url)
    mine, theirs = repository.namespace_id, other.namespace_id
    with SyncRateLimiter(other, default_limits=[RPD]).acquire("evil", "gpt-4", {"rpd": 90}):
        pass
    store = other.scope.store
    key = {"PK": f"{theirs}/BUCKET#evil#gpt-4#0", "SK": "#STATE"}
    (item,) = run(store.table.batch_get([to_item(key)], consistent=True))  # type: ignore[attr-defined]
    for index, partition, place in (
        ("GSI1", f"{mine}/PARENT#acme", "CHILD#evil"),
        ("GSI2", f"{mine}/RESOURCE#gpt-4", "BUCKET#evil#0"),
        ("GSI3", f"{mine}/ENTITY#acme", "BUCKET#gpt-4#0"),
        ("GSI4", mine, "BUCKET#evil#gpt-4#0"),
    ):
        item |= to_item({f"{index}PK": partition, f"{index}SK": place})
    run(store.table.put(item))  # type: ignore[attr-defined]
    run(store.table.put({**item, **to_item({"SK": "#X", "GSI3PK": f"{mine}/ENTITY_CONFIG#gpt-4"})}))  # type: ignore[attr-defined]
    other.close()
    return repository


def test_lists_and_sums_leave_out_items_of_other_tenants(tenant: SyncRepository) -> None:
    assert tenant.get_children("acme") == []
    assert tenant.list_entities(parent_id="acme") == ([], None)
    capacity = SyncRateLimiter(tenant).get_resource_capacity("gpt-4", "rpd")
    assert (capacity.total_capacity, capacity.total_available) == (100, 99)
    assert tenant.list_entities_with_custom_limits("gpt-4") == ([], None)
    assert [each.entity_id for each in tenant.get_balances(resource="gpt-4")] == ["acme"]
    tenant.close()


def test_deleting_leaves_items_of_other_tenants_alone(
    tenant: SyncRepository, table: OwnTable
) -> None:
    tenant.delete_entity("acme")
    tenant.close()
    with SyncRepository.connect("other", url=table.url) as other:
        (state,) = [s for s in other.get_buckets("evil", "gpt-4") if s.limit_name == "rpd"]
        assert state.tokens == 10
