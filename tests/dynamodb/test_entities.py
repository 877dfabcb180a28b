"""Entity records: their shape, and how they end."""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import cycle
from typing import Any

import pytest

from tests.support.dynamodb import NS, Costs, Runner, event, everything, get, interrupted, put
from tests.support.servers.chaos import Answer, ChaosProxy, DropAnswer, Pass
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.exceptions import StorageUnavailable, StoredDataError
from zae_limiter.core.hierarchy import ConfigSlot
from zae_limiter.core.limit import Limit, LimitSet
from zae_limiter.core.models import Entity, LimiterConfig
from zae_limiter.core.planner import Intent, plan_create
from zae_limiter.core.writes import Create
from zae_limiter.ports.io import Io

CHILD = Entity("key-1", "Key", "org-1", True, {"": "empty", "\0": "nul"}, "2024-01-01T00:00:00Z")
LIMITS = LimitSet.of([Limit.per_minute("rpm", 100)])
META = (f"{NS}/ENTITY#key-1", "#META")


async def create(store: DynamoStore, entity: Entity) -> bool:
    return await store.entities.create(NS, entity, event(store.table.io, entity.id))


async def set_limits(store: DynamoStore, entity_id: str, resource: str) -> None:
    slot, change = ConfigSlot(entity_id, resource), LimiterConfig(LIMITS.limits)
    await store.configs.write(NS, slot, change, event(store.table.io, entity_id))


async def use(store: DynamoStore, entity_id: str, resource: str) -> None:
    io = store.table.io
    intent = Intent(LIMITS, {"rpm": 1}, 1, None, None, False)
    planned = plan_create(intent, io.operation_id(), io.now_ms())
    assert isinstance(planned, Create)
    await store.buckets.write(BucketAddress(NS, entity_id, resource), planned)


async def snapshot(store: DynamoStore, entity_id: str, hour: int) -> None:
    sk = f"#USAGE#gpt-4#2024-01-{1 + hour // 24:02}T{hour % 24:02}:00:00Z"
    pk = f"{NS}/ENTITY#{entity_id}"
    await put(store, PK=pk, SK=sk, entity_id=entity_id, GSI4PK=NS, GSI4SK=pk)


async def fill(store: DynamoStore, entity_id: str = "key-1", configs: int = 3) -> int:
    """Everything an entity can have; how many records that is."""
    await create(store, Entity(entity_id, parent_id="org-1"))
    for number in range(configs):
        await set_limits(store, entity_id, f"r{number}")
        await use(store, entity_id, f"r{number}")
    for hour in range(30):
        await snapshot(store, entity_id, hour)
    return 1 + 2 * configs + 30


def left_of(found: dict[tuple[str, str], Any], entity_id: str) -> list[tuple[str, str]]:
    marks = (f"/ENTITY#{entity_id}", f"/BUCKET#{entity_id}#")
    return [k for k in found if k[0].endswith(marks[0]) or marks[1] in k[0]]


def deletion(io: Io) -> Any:
    return event(io, action="entity_deleted")


def test_a_record_has_the_documented_shape(store: DynamoStore, driver: Runner) -> None:
    assert driver.run(create(store, CHILD))
    assert driver.run(get(store, *META)) == {
        "PK": META[0],
        "SK": META[1],
        "entity_id": "key-1",
        "name": "Key",
        "parent_id": "org-1",
        "cascade": True,
        "metadata": {"\0": "empty", "\0\0": "nul"},
        "created_at": "2024-01-01T00:00:00Z",
        "version": 1,
        "GSI1PK": f"{NS}/PARENT#org-1",
        "GSI1SK": "CHILD#key-1",
        "GSI4PK": NS,
        "GSI4SK": META[0],
    }
    driver.run(create(store, Entity("org-1")))
    root = driver.run(get(store, f"{NS}/ENTITY#org-1", "#META"))
    assert root["parent_id"] is None
    assert not {name for name in root if name.startswith("GSI1")}


def test_each_entity_operation_costs_the_known_calls(store: DynamoStore, driver: Runner) -> None:
    driver.run(create(store, Entity("org-1")))
    costs = Costs(store)
    driver.run(create(store, CHILD))
    assert costs.calls == {"TransactWriteItems": 1}
    costs = Costs(store)
    driver.run(store.entities.read(NS, "key-1"))
    assert (costs.calls, costs.units()) == ({"GetItem": 1}, 1)
    costs = Costs(store)
    assert driver.run(store.entities.children(NS, "org-1")) == [CHILD]
    assert (costs.calls, costs.units()) == ({"Query": 1}, 0.5)
    costs = Costs(store)
    driver.run(store.entities.update(NS, CHILD, 1, event(driver.io)))
    assert costs.calls == {"GetItem": 1, "TransactWriteItems": 1}


def test_an_entity_of_an_older_client_is_at_the_first_version(
    store: DynamoStore, driver: Runner
) -> None:
    added = {"pgen": 1_794_765_768_643, "pinc": "1262d7f919e35287"}
    old = {"PK": META[0], "SK": META[1], "entity_id": "key-1", "name": "k", "parent_id": None}
    driver.run(put(store, **old, **added, metadata={"a": "b"}, GSI4PK=NS, GSI4SK=META[0]))
    found = driver.run(store.entities.read(NS, "key-1"))
    assert (found, found.version) == (Entity("key-1", "k", None, False, {"a": "b"}), 1)
    renamed = Entity("key-1", "new", metadata={"c": "d"})
    assert driver.run(store.entities.update(NS, renamed, 2, event(driver.io))) is None
    assert driver.run(store.entities.update(NS, renamed, 1, event(driver.io))).version == 2
    stored = driver.run(get(store, *META))
    assert (stored["name"], stored["metadata"], stored["version"]) == ("new", {"c": "d"}, 2)
    assert {name: stored[name] for name in added} == added
    assert driver.run(store.entities.update(NS, renamed, 1, event(driver.io))) is None


def test_metadata_of_another_client_is_read_whatever_its_values(
    store: DynamoStore, driver: Runner
) -> None:
    stored = {"n": 1, "x": Decimal("1.5"), "on": True, "none": None, "set": {"b", "a"}}
    driver.run(put(store, PK=META[0], SK=META[1], entity_id="key-1", metadata=stored))
    found = driver.run(store.entities.read(NS, "key-1"))
    assert found.metadata == {"n": 1, "x": 1.5, "on": True, "none": None, "set": ["a", "b"]}
    assert isinstance(found.metadata["x"], float)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ({"entity_id": 5}, "entity_id is 5, not text"),
        ({"metadata": "x"}, "metadata is 'x', not a map"),
        ({"cascade": "yes"}, "cascade is 'yes'"),
        ({"version": "1"}, "version is '1'"),
        ({"version": 10**37}, "version is 1000+, which is out of all bounds"),
    ],
    ids=str,
)
def test_a_record_that_cannot_be_read_is_named(
    store: DynamoStore, driver: Runner, damage: dict[str, Any], reason: str
) -> None:
    values = {"PK": META[0], "SK": META[1], "entity_id": "key-1", **damage}
    driver.run(put(store, **values))
    for asked in (store.entities.read(NS, "key-1"), store.configs.read(NS, [], "key-1")):
        with pytest.raises(StoredDataError, match=reason) as raised:
            driver.run(asked)
        assert raised.value.record == " ".join(META)


def test_an_update_of_a_record_whose_version_is_null_names_it(
    store: DynamoStore, driver: Runner
) -> None:
    driver.run(put(store, PK=META[0], SK=META[1], entity_id="key-1", version=None))
    with pytest.raises(StoredDataError, match="version is null") as raised:
        driver.run(store.entities.update(NS, Entity("key-1", "new"), 1, event(driver.io)))
    assert raised.value.record == " ".join(META)


def test_all_children_are_found_however_many(store: DynamoStore, driver: Runner) -> None:
    names = [f"key-{number:04}" for number in range(1010)]
    puts = [
        {
            "PutRequest": {
                "Item": {
                    "PK": {"S": f"{NS}/ENTITY#{name}"},
                    "SK": {"S": "#META"},
                    "entity_id": {"S": name},
                    "GSI1PK": {"S": f"{NS}/PARENT#org-1"},
                    "GSI1SK": {"S": f"CHILD#{name}"},
                }
            }
        }
        for name in names
    ]
    for start in range(0, len(puts), 25):
        request = {"RequestItems": {store.table.name: puts[start : start + 25]}}
        driver.run(store.table.call("BatchWriteItem", request))
    found = driver.run(store.entities.children(NS, "org-1"))
    assert [child.id for child in found] == names


def test_nothing_of_a_deleted_entity_is_left_but_its_events(
    store: DynamoStore, driver: Runner
) -> None:
    records = driver.run(fill(store))
    kept = driver.run(fill(store, "key-10"))
    told = deletion(driver.io)
    assert driver.run(store.entities.delete(NS, "key-1", told)) == records
    found = driver.run(everything(store))
    assert left_of(found, "key-1") == []
    assert len(left_of(found, "key-10")) == kept
    events = driver.run(store.audit.read(NS, "key-1", 100, None))
    assert (events[0].event_id, events[0].details) == (told.event_id, {"records_deleted": records})
    assert len(events) == 1 + 1 + 3
    assert driver.run(store.entities.delete(NS, "key-1", deletion(driver.io))) == 0
    assert len(driver.run(store.audit.read(NS, "key-1", 100, None))) == len(events)


def test_a_deleted_entity_is_no_longer_counted(store: DynamoStore, driver: Runner) -> None:
    driver.run(fill(store, configs=55))
    driver.run(set_limits(store, "key-2", "r1"))
    driver.run(store.entities.delete(NS, "key-1", deletion(driver.io)))
    assert driver.run(store.configs.resources_with_entity_limits(NS)) == ["r1"]
    counts = driver.run(get(store, f"{NS}/SYSTEM#", "#ENTITY_CONFIG_RESOURCES"))
    assert (counts["r1"], counts["r0"], counts["r54"]) == (1, 0, 0)


def test_an_entity_without_a_record_is_deleted_too(store: DynamoStore, driver: Runner) -> None:
    driver.run(use(store, "key-1", "gpt-4"))
    assert driver.run(store.entities.delete(NS, "key-1", deletion(driver.io))) == 1
    assert left_of(driver.run(everything(store)), "key-1") == []


def test_an_interrupted_deletion_is_ambiguous_and_goes_on_when_it_is_called_again(
    shaky: DynamoStore, patient: Runner, proxy: ChaosProxy
) -> None:
    patient.run(fill(shaky))
    interruptions = 0
    for passed in range(30):
        deleting = shaky.entities.delete(NS, "key-1", deletion(patient.io))
        error = interrupted(patient, proxy, passed, deleting)
        if error is None:
            break
        assert error.ambiguous
        assert "call it again" in str(error)
        assert patient.run(shaky.entities.read(NS, "key-1")), "It goes last"
        interruptions += 1
    assert interruptions >= 3
    assert left_of(patient.run(everything(shaky)), "key-1") == []
    assert patient.run(shaky.configs.resources_with_entity_limits(NS)) == []


def test_a_create_without_answer_is_carried_out_once(
    shaky: DynamoStore, patient: Runner, proxy: ChaosProxy
) -> None:
    patient.run(create(shaky, Entity("org-1")))
    proxy.use([DropAnswer(), DropAnswer()])
    assert patient.run(create(shaky, CHILD)), "It was new: the lost answer had said so"
    assert len(patient.run(shaky.audit.read(NS, "key-1", 10, None))) == 1


def test_a_create_that_meets_others_is_tried_again(
    shaky: DynamoStore, patient: Runner, proxy: ChaosProxy
) -> None:
    patient.run(create(shaky, Entity("org-1")))
    reasons = [{"Code": "TransactionConflict"}, {"Code": "None"}]
    canceled = {"__type": "TransactionCanceledException", "CancellationReasons": reasons}
    conflict = Answer(400, json.dumps(canceled).encode())
    proxy.use([conflict] * 4)
    assert patient.run(create(shaky, CHILD))
    proxy.use(cycle([conflict, conflict, conflict, conflict, Pass()]))
    with pytest.raises(StorageUnavailable, match="kept busy by other writers"):
        patient.run(create(shaky, Entity("key-9")))
