"""The registry of namespaces, and the end of a namespace's data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.dynamodb import NS, Costs, Runner, event, everything, get, interrupted, put
from tests.support.servers.chaos import Act, ChaosProxy, DropAnswer, Pass
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.core.exceptions import NamespaceStateError, StoredDataError
from zae_limiter.core.hierarchy import SYSTEM_SLOT, ConfigSlot
from zae_limiter.core.limit import Limit
from zae_limiter.core.models import Entity, LimiterConfig
from zae_limiter.ports.repository_protocol import NamespaceRecord

TEAM = NamespaceRecord("team", NS, "2024-01-01T00:00:00Z")
DELETED_AT = "2024-02-02T00:00:00Z"
REGISTRY = "_/SYSTEM#"
BY_NAME, BY_ID = (REGISTRY, "#NAMESPACE#team"), (REGISTRY, f"#NSID#{NS}")
CONFIG = LimiterConfig((Limit.per_minute("rpm", 1),))


def shape(sk: str, **values: str) -> dict[str, str]:
    return {
        "PK": REGISTRY,
        "SK": sk,
        "GSI4PK": "_",
        "GSI4SK": REGISTRY,
        "namespace_id": NS,
        "namespace_name": "team",
        "created_at": "2024-01-01T00:00:00Z",
        "status": "active",
        **values,
    }


def test_records_have_the_documented_shape(store: DynamoStore, driver: Runner) -> None:
    costs = Costs(store)
    assert driver.run(store.namespaces.register(TEAM)) == TEAM
    assert costs.calls == {"GetItem": 1, "TransactWriteItems": 1}
    assert driver.run(get(store, *BY_NAME)) == shape(BY_NAME[1])
    assert driver.run(get(store, *BY_ID)) == shape(BY_ID[1])
    costs = Costs(store)
    assert driver.run(store.namespaces.register(replace(TEAM, namespace_id="other"))) == TEAM
    assert costs.calls == {"GetItem": 1}
    driver.run(store.namespaces.delete("team", DELETED_AT))
    assert driver.run(get(store, *BY_NAME)) is None
    deleted = shape(BY_ID[1], status="deleted", deleted_at=DELETED_AT)
    assert driver.run(get(store, *BY_ID)) == deleted
    assert driver.run(store.namespaces.recover(NS))
    assert driver.run(get(store, *BY_NAME)) == shape(BY_NAME[1])
    assert driver.run(get(store, *BY_ID)) == shape(BY_ID[1])


def test_foreign_attributes_of_a_namespace_record_stay(store: DynamoStore, driver: Runner) -> None:
    driver.run(put(store, **shape(BY_NAME[1])))
    driver.run(put(store, **shape(BY_ID[1], owner="someone")))
    assert driver.run(store.namespaces.read("team")) == TEAM
    driver.run(store.namespaces.delete("team", DELETED_AT))
    driver.run(store.namespaces.recover(NS))
    assert driver.run(get(store, *BY_ID))["owner"] == "someone"


def test_a_name_whose_record_is_not_active_is_free(store: DynamoStore, driver: Runner) -> None:
    driver.run(put(store, **shape(BY_NAME[1], status="deleted", namespace_id="old")))
    assert driver.run(store.namespaces.read("team")) is None
    assert driver.run(store.namespaces.register(TEAM)) == TEAM
    assert driver.run(store.namespaces.read("team")) == TEAM


def test_a_record_that_cannot_be_read_is_named(store: DynamoStore, driver: Runner) -> None:
    driver.run(put(store, PK=REGISTRY, SK=BY_NAME[1], namespace_id=5))
    with pytest.raises(StoredDataError, match="namespace_name is None") as raised:
        driver.run(store.namespaces.read("team"))
    assert raised.value.record == " ".join(BY_NAME)


def test_more_namespaces_than_a_page_holds(store: DynamoStore, driver: Runner) -> None:
    """Long ids make long records: a page of a megabyte is soon full."""
    for number in range(3):
        values = {"owner": "x" * 390_000, "namespace_name": f"team-{number}"}
        driver.run(put(store, **shape(f"#NAMESPACE#team-{number}", **values)))
        driver.run(put(store, **shape(f"#NSID#id-{number}", status="deleted", **values)))
    names = ["team-0", "team-1", "team-2"]
    assert [record.name for record in driver.run(store.namespaces.active())] == names
    assert [record.name for record in driver.run(store.namespaces.orphans())] == names


async def fill(store: DynamoStore, namespace_id: str) -> None:
    io = store.table.io
    for slot in (SYSTEM_SLOT, ConfigSlot(resource="gpt-4"), ConfigSlot("key-1", "gpt-4")):
        await store.configs.write(namespace_id, slot, CONFIG, event(io))
        await store.configs.delete(namespace_id, slot, event(io))
        await store.configs.write(namespace_id, slot, CONFIG, event(io))
    for number in range(30):
        await store.entities.create(namespace_id, Entity(f"e-{number}"), event(io))
    # As an older client leaves it: found through no index.
    await put(store, PK=f"{namespace_id}/SYSTEM#", SK="#PROVISIONER", GSI4PK=namespace_id)


def in_namespace(found: dict[tuple[str, str], Any], namespace_id: str) -> list[tuple[str, str]]:
    return [key for key in found if key[0].startswith(f"{namespace_id}/")]


def test_a_purge_leaves_nothing_of_one_namespace(store: DynamoStore, driver: Runner) -> None:
    other = replace(TEAM, name="other", namespace_id=f"{NS}-2")
    for record in (TEAM, other):
        driver.run(store.namespaces.register(record))
        driver.run(fill(store, record.namespace_id))
    driver.run(store.namespaces.delete("team", DELETED_AT))
    before = driver.run(everything(store))
    purged = driver.run(store.namespaces.purge(NS))
    after = driver.run(everything(store))
    assert in_namespace(after, NS) == []
    assert purged == len(in_namespace(before, NS))
    assert len(in_namespace(after, other.namespace_id)) == purged
    assert driver.run(store.namespaces.read_id(NS)) is None
    assert driver.run(store.namespaces.purge(NS)) == 0
    assert driver.run(store.namespaces.active()) == [other]


def test_an_active_namespace_is_not_purged(store: DynamoStore, driver: Runner) -> None:
    driver.run(store.namespaces.register(TEAM))
    driver.run(fill(store, NS))
    before = driver.run(everything(store))
    with pytest.raises(NamespaceStateError, match="delete it first") as raised:
        driver.run(store.namespaces.purge(NS))
    assert raised.value.state == "active"
    assert driver.run(everything(store)) == before


def test_an_interrupted_purge_can_be_found_and_finished_but_not_recovered(
    shaky: DynamoStore, patient: Runner, proxy: ChaosProxy
) -> None:
    namespaces = shaky.namespaces
    patient.run(namespaces.register(TEAM))
    patient.run(fill(shaky, NS))
    patient.run(namespaces.delete("team", DELETED_AT))
    interruptions = 0
    for passed in range(2, 40):
        error = interrupted(patient, proxy, passed, namespaces.purge(NS))
        if error is None:
            break
        assert error.ambiguous
        (orphan,) = patient.run(namespaces.orphans())
        assert (orphan.namespace_id, orphan.status) == (NS, "purging")
        assert not patient.run(namespaces.recover(NS))
        interruptions += 1
    assert interruptions >= 3
    assert patient.run(namespaces.orphans()) == []
    assert in_namespace(patient.run(everything(shaky)), NS) == []


def test_changes_without_answer_are_carried_out_once(
    shaky: DynamoStore, patient: Runner, proxy: ChaosProxy
) -> None:
    namespaces = shaky.namespaces
    lost: list[Act] = [Pass(), DropAnswer(), DropAnswer()]
    proxy.use(lost)
    assert patient.run(namespaces.register(TEAM)) == TEAM
    proxy.use(lost)
    patient.run(namespaces.delete("team", DELETED_AT))
    assert patient.run(namespaces.read("team")) is None
    proxy.use([Pass(), *lost])
    assert patient.run(namespaces.recover(NS))
    assert patient.run(namespaces.read("team")) == TEAM
