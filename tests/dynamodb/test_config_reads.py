"""Calls and read units that a read of configuration takes, as the server bills them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, NamedTuple

import pytest
from bench.costs import billed

from tests.support.drivers import Driver, open_repository
from tests.support.dynamodb import IS_EXACT, NS, Costs, Runner, event, get, put
from tests.support.servers.tables import OwnTable
from zae_limiter import Limit, Repository
from zae_limiter.backends.dynamodb.configs import FEW
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.core.hierarchy import ConfigSlot, own_slots
from zae_limiter.core.models import Entity, LimiterConfig
from zae_limiter.core.validation import DEFAULT_RESOURCE
from zae_limiter.flows.config.resolve import resolve, resolve_afresh, resolve_on_unavailable
from zae_limiter.ports.repository_protocol import ConfigPage
from zae_limiter.testing import ManualClock

RPM, TPM = Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 100)


class Asked(NamedTuple):
    """Calls, and read units if the server bills them as AWS does."""

    calls: float
    rcu: float | None


def asked(calls: float, rcu: float) -> Asked:
    return Asked(calls, rcu if IS_EXACT else None)


class Client:
    """A process of its own that adds up the calls it makes."""

    def __init__(self, repository: Repository, clock: ManualClock) -> None:
        self.repository, self.scope, self.clock = repository, repository.scope, clock

    async def cost(self, flow: Coroutine[Any, Any, object]) -> Asked:
        store: Any = self.scope.store
        with billed(store.table) as bill:
            await flow
        assert (bill.cost.wcu, bill.cost.refused) == (0, 0)
        return asked(bill.cost.calls, bill.cost.rcu)

    async def all_at_once(self, entity_ids: Sequence[str]) -> Asked:
        """Calls and units if all entities are asked for at the same time."""

        async def ask() -> None:
            asking = (resolve(self.scope, entity_id, "gpt-4") for entity_id in entity_ids)
            await asyncio.gather(*asking)

        return await self.cost(ask())

    async def resolve(self, entity_id: str, resource: str = "gpt-4") -> Asked:
        return await self.cost(resolve(self.scope, entity_id, resource))


@pytest.fixture(params=["asyncio", "blocking"])
async def client(request: pytest.FixtureRequest, table: OwnTable) -> AsyncIterator[Client]:
    facade: Driver = request.param
    clock = ManualClock()
    async with await open_repository(facade, url=table.url, clock=clock) as repository:
        await repository.set_system_defaults([RPM])
        yield Client(repository, clock)


async def test_the_first_read_of_a_process_brings_every_record_in_one_call(client: Client) -> None:
    assert await client.resolve("a") == asked(1, 5)
    assert await client.resolve("a") == asked(0, 0)


async def test_a_new_entity_costs_one_unit_while_shared_records_are_fresh(
    client: Client,
) -> None:
    await client.resolve("a")
    await client.repository.create_entity("b", parent_id="org", cascade=True)
    await client.repository.set_limits("c", [TPM], "gpt-4")
    await client.repository.set_limits("c", [TPM])
    await client.resolve("a")
    for entity_id in ("b", "c", "d"):
        assert await client.resolve(entity_id) == asked(1, 1)


async def test_a_new_resource_is_read_in_one_call_with_the_entity(
    client: Client,
) -> None:
    await client.resolve("a")
    assert await client.resolve("a", "gpt-5") == asked(1, 4)
    assert await client.resolve("b", "gpt-5") == asked(1, 1)


async def test_shared_records_are_read_once_in_a_ttl(client: Client) -> None:
    assert await client.resolve("a") == asked(1, 5)
    client.clock.advance(30)
    assert await client.resolve("b") == asked(1, 1)
    client.clock.advance(30)
    assert await client.resolve("b") == asked(2, 3), "resource, system, registration"
    assert await client.resolve("a") == asked(1, 1)
    client.clock.advance(30)
    assert await client.resolve("b") == asked(1, 1)
    client.clock.advance(30)
    assert await client.resolve("a") == asked(2, 6)


async def test_resolving_afresh_reads_every_record_in_one_call(client: Client) -> None:
    await client.resolve("a")
    assert await client.cost(resolve_afresh(client.scope, "a", "gpt-4")) == asked(1, 5)
    assert await client.resolve("a") == asked(0, 0)


async def test_on_unavailable_is_one_read_unless_the_system_record_is_fresh(client: Client) -> None:
    assert await client.cost(resolve_on_unavailable(client.scope)) == asked(1, 1)
    assert await client.resolve("a") == asked(1, 4)
    assert await client.cost(resolve_on_unavailable(client.scope)) == asked(0, 0)
    client.clock.advance(60)
    assert await client.cost(resolve_on_unavailable(client.scope)) == asked(1, 1)


async def test_a_hundred_entities_read_their_shared_records_once(client: Client) -> None:
    await client.resolve("first")
    assert {await client.resolve(f"key-{number}") for number in range(100)} == {asked(1, 1)}


async def test_tasks_that_ask_at_the_same_time_share_one_read(client: Client) -> None:
    assert await client.all_at_once(["a"] * 20) == asked(1, 5)
    client.clock.advance(30)
    entity_ids = [f"key-{number}" for number in range(20)]
    assert await client.all_at_once(entity_ids) == asked(20, 20)
    client.clock.advance(30)
    assert await client.all_at_once(entity_ids) == asked(2, 3)
    assert await client.all_at_once(["a"] * 20) == asked(1, 1)


class Partition:
    """The partition of one entity, with as many configs as a test wants."""

    def __init__(self, store: DynamoStore, driver: Runner) -> None:
        self.store, self.run = store, driver.run
        told = event(driver.io)
        self.run(store.entities.create(NS, Entity("key-1", parent_id="org"), told))
        self.run(store.configs.write(NS, ConfigSlot("key-1", "gpt-4"), LimiterConfig((RPM,)), told))
        self.run(
            store.configs.write(
                NS, ConfigSlot("key-1", DEFAULT_RESOURCE), LimiterConfig((TPM,)), told
            )
        )

    def copy(self, **changes: Any) -> None:
        """Store another record like the config."""
        item = self.run(get(self.store, f"{NS}/ENTITY#key-1", "#CONFIG#gpt-4"))
        self.run(put(self.store, **{**item, **changes}))

    def read(self) -> ConfigPage:
        page: ConfigPage = self.run(
            self.store.configs.read(NS, own_slots("key-1", "gpt-4"), "key-1")
        )
        return page


EXPECTED = {
    ConfigSlot("key-1", "gpt-4"): LimiterConfig((RPM,)),
    ConfigSlot("key-1", DEFAULT_RESOURCE): LimiterConfig((TPM,)),
}


@pytest.fixture
def partition(store: DynamoStore, driver: Runner) -> Partition:
    return Partition(store, driver)


def test_the_records_of_an_entity_are_one_query(partition: Partition) -> None:
    costs = Costs(partition.store)
    page = partition.read()
    assert page.configs == EXPECTED
    assert page.entity is not None
    assert page.entity.parent_id == "org"
    assert costs.calls == {"Query": 1}
    assert costs.units() == 1


def test_the_usage_of_an_entity_is_not_read_with_its_configs(partition: Partition) -> None:
    """Usage grows without end. Audit records do too, but have a partition of their own."""
    for number in range(100):
        partition.copy(SK=f"#USAGE#gpt-4#2024-01-{number:02}", padding="x" * 1000)
    costs = Costs(partition.store)
    assert partition.read().configs == EXPECTED
    assert costs.calls == {"Query": 1}
    assert costs.units() == 1


@pytest.mark.parametrize("name", ["Aaa", "aaa", "zzz"])
def test_an_entity_with_many_configs_is_read_by_key(partition: Partition, name: str) -> None:
    """Wherever the other configs stand. The first query finds out that there are many."""
    for number in range(FEW):
        partition.copy(SK=f"#CONFIG#{name}-{number}", resource=f"{name}-{number}")
    costs = Costs(partition.store)
    assert partition.read().configs == EXPECTED
    assert costs.calls == {"Query": 1, "BatchGetItem": 1}
    costs = Costs(partition.store)
    page = partition.read()
    assert page.configs == EXPECTED
    assert page.entity is not None
    assert costs.calls == {"BatchGetItem": 1}
    if IS_EXACT:
        assert costs.units() == 3


@pytest.mark.parametrize("name", ["Aaa", "aaa", "zzz"])
def test_an_entity_with_some_configs_is_one_query(partition: Partition, name: str) -> None:
    for number in range(FEW - 4):
        partition.copy(SK=f"#CONFIG#{name}-{number}", resource=f"{name}-{number}")
    costs = Costs(partition.store)
    page = partition.read()
    assert page.configs == EXPECTED
    assert page.entity is not None
    assert costs.calls == {"Query": 1}
    assert costs.units() <= 3
