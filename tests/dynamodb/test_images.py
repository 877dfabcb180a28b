"""Writes that were planned on images of a bucket, some of them old."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.dynamodb import NS, Runner
from tests.support.servers.tables import OwnTable
from zae_limiter import Limit, RateLimiter, Repository
from zae_limiter.backends.dynamodb.bucket_codec import bucket_key
from zae_limiter.backends.dynamodb.expressions import Field
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.backends.dynamodb.table import Table
from zae_limiter.core.bucket import Bucket, BucketAddress
from zae_limiter.core.exceptions import StorageUnavailable
from zae_limiter.core.idempotency import operation_id, operation_name
from zae_limiter.core.limit import LimitSet
from zae_limiter.core.planner import Crowded, Intent, Short, plan, plan_create, plan_restamp
from zae_limiter.core.writes import Adjust, Granted, Write

LIMITS = LimitSet.of([Limit.per_hour("rph", 7), Limit.per_day("tpd", 1_000)])
TAKES_MILLI = {"rph": 10, "tpd": 100, "wcu": 1250}
ADDRESS = BucketAddress(NS, "key-1", "gpt-4")
START_MS = 1_800_000_000_000


def intent(ttl_seconds: int | None = None, parent_id: str | None = None) -> Intent:
    return Intent(LIMITS, TAKES_MILLI, 1, ttl_seconds, parent_id, parent_id is not None, True)


class Scene:
    """A bucket in a table, and what is done to it."""

    def __init__(self, driver: Runner, store: DynamoStore) -> None:
        self._driver = driver
        self._store = store
        self.now_ms = START_MS
        first = plan_create(intent(), self._operation(), START_MS)
        assert not isinstance(first, Short)
        assert self.write(first) is not None

    def _operation(self) -> str:
        """An id that tells the time of the scene."""
        return operation_id(self.now_ms, operation_name(self._driver.io.operation_id()))

    def write(self, write: Write) -> Bucket | None:
        """The bucket after it, or None if it was refused."""
        outcome = self._driver.run(self._store.buckets.write(ADDRESS, write))
        return outcome.bucket if isinstance(outcome, Granted) else None

    def stored(self) -> Bucket:
        found: dict[BucketAddress, Bucket] = self._driver.run(self._store.buckets.read([ADDRESS]))
        return found[ADDRESS]

    def take(self, seen: Bucket) -> Bucket | None:
        planned = plan(intent(), seen, self._operation(), self.now_ms)
        return None if isinstance(planned, Short | Crowded) else self.write(planned)

    def refill(self, ttl_seconds: int | None, parent_id: str | None) -> None:
        self.now_ms += 1_234
        owner, operation = intent(ttl_seconds, parent_id), self._operation()
        self.write(plan_restamp(owner, self.stored(), operation, self.now_ms))

    def remove(self, attribute: str) -> None:
        """Change the item by hand."""
        terms = [Field(attribute).remove()]
        self._driver.run(self._store.table.update(bucket_key(ADDRESS), terms))

    def calls(self) -> int:
        return self._store.table.client.meter.calls.total()

    def adjust(self, seen: Bucket, **deltas_milli: int) -> Bucket | None:
        operation = self._operation()
        return self.write(Adjust(operation, self.now_ms, deltas_milli, 0, seen))


@pytest.fixture
def scene(driver: Runner, store: DynamoStore) -> Scene:
    return Scene(driver, store)


def test_an_adjustment_reaches_a_limit_that_the_image_does_not_know(scene: Scene) -> None:
    before = scene.stored()
    only = {name: cell for name, cell in before.cells.items() if name != "tpd"}
    after = scene.adjust(before._replace(cells=only), tpd=300)
    assert after == scene.stored()
    assert after.cells["tpd"].tokens_milli == before.cells["tpd"].tokens_milli - 300


@pytest.mark.parametrize("lacking", ["lo", "l2"])
def test_an_item_that_lacks_its_last_operations_is_taken_from_in_one_call(
    scene: Scene, lacking: str
) -> None:
    seen = scene.stored()
    scene.remove(lacking)
    calls = scene.calls()
    after = scene.take(seen)
    assert scene.calls() == calls + 1
    assert after == scene.stored()
    assert after.cells["rph"].consumed_milli == seen.cells["rph"].consumed_milli + 10


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happened_since_the_image_the_answer_is_the_item(scene: Scene, seed: int) -> None:
    chance = random.Random(seed)
    scene.adjust(scene.stored(), rph=3_000, tpd=500_000)
    images = [scene.stored()]
    happenings: list[Callable[[], object]] = [
        lambda: scene.refill(chance.choice((None, 86_400)), chance.choice((None, "org-1"))),
        lambda: scene.adjust(scene.stored(), rph=chance.randint(-300, 300)),
        lambda: scene.adjust(images[0], tpd=-chance.choice((300, 300, 10**9))),
        lambda: None,
    ]
    carried_out = 0
    for _ in range(30):
        chance.choice(happenings)()
        after = scene.take(chance.choice(images[-3:]))
        images.append(scene.stored())
        if after is not None:
            carried_out += 1
            assert after == images[-1]
    assert carried_out


@pytest.mark.parametrize("fate", ["deleted", "unreadable"])
def test_a_transaction_is_granted_whatever_becomes_of_its_items(
    driver: Runner, store: DynamoStore, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    addresses = [ADDRESS, ADDRESS._replace(entity_id="org")]
    read = Table.batch_get

    async def read_too_late(table: Table, keys: Any, **options: Any) -> Any:
        if fate == "unreadable":
            raise StorageUnavailable("no answer")
        await table.delete(keys[-1])
        return await read(table, keys, **options)

    monkeypatch.setattr(Table, "batch_get", read_too_late)
    writes = []
    for address in addresses:
        made = plan_create(intent(), driver.io.operation_id(), START_MS)
        assert not isinstance(made, Short)
        writes.append((address, made))
    outcomes = driver.run(store.buckets.write_all(writes))
    assert [type(outcome) for outcome in outcomes] == [Granted, Granted]


async def test_a_cascade_whose_bucket_is_deleted_at_once_is_charged_once(
    table: OwnTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RateLimiter(repository=await Repository.open(url=table.url)) as limiter:
        await limiter.set_system_defaults([Limit.per_day("rpd", 1_000)])
        await limiter.create_entity("org")
        await limiter.create_entity("key-1", parent_id="org", cascade=True)
        transact = Table.transact

        async def transact_and_lose(table: Table, actions: Any, **options: Any) -> None:
            await transact(table, actions, **options)
            await table.delete(bucket_key(BucketAddress(limiter.scope.namespace_id, "org", "a")))

        monkeypatch.setattr(Table, "transact", transact_and_lose)
        async with limiter.acquire("key-1", "a", {"rpd": 1}):
            pass
        assert await limiter.available("key-1", "a") == {"rpd": 999}
