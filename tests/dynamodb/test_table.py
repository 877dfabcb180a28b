"""Calls on items, and the care that each needs."""

from __future__ import annotations

import json

import pytest

from tests.support.dynamodb import Costs, Runner, everything
from tests.support.servers.chaos import INTERNAL_ERROR, Act, Answer, ChaosProxy, DropAnswer, Reset
from zae_limiter.backends.dynamodb.expressions import IS_NEW, PK, Field, Term
from zae_limiter.backends.dynamodb.schema import key
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.backends.dynamodb.table import Table, repeat
from zae_limiter.backends.dynamodb.wire.errors import ConditionFailed, TransactionCanceled
from zae_limiter.backends.dynamodb.wire.values import Item, to_item
from zae_limiter.core.exceptions import StorageUnavailable
from zae_limiter.ports.repository_protocol import StoreClosed


def item(number: int, **values: object) -> Item:
    return to_item({"PK": "p", "SK": f"{number:05}", **values})


def keys(count: int) -> list[Item]:
    return [key("p", f"{number:05}") for number in range(count)]


async def fill(table: Table, count: int) -> None:
    puts = [{"PutRequest": {"Item": item(number)}} for number in range(count)]
    for start in range(0, count, 25):
        request = {"RequestItems": {table.name: puts[start : start + 25]}}
        await table.call("BatchWriteItem", request)


def counting(amount: int = 1) -> list[Term]:
    return [Field("n").add(amount)]


def test_any_number_of_keys_is_read_once_each(store: DynamoStore, driver: Runner) -> None:
    driver.run(fill(store.table, 230))
    costs = Costs(store)
    found = driver.run(store.table.batch_get([*keys(250), *keys(10)], consistent=True))
    assert sorted(each["SK"]["S"] for each in found) == [f"{n:05}" for n in range(230)]
    assert costs.calls == {"BatchGetItem": 3}
    assert costs.units() <= 250
    assert driver.run(store.table.batch_get([])) == []


def test_any_number_of_items_is_deleted(store: DynamoStore, driver: Runner) -> None:
    driver.run(fill(store.table, 60))
    costs = Costs(store)
    assert driver.run(store.table.batch_delete([*keys(55), *keys(3)])) == 55
    assert costs.calls == {"BatchWriteItem": 3}
    assert sum(pk == "p" for pk, _ in driver.run(everything(store))) == 5


def unprocessed(field: str, content: object, table: Table) -> Answer:
    answer = {"Responses": {table.name: []}, field: {table.name: content}}
    return Answer(200, json.dumps(answer).encode())


def test_keys_that_were_left_over_are_read_later(
    shaky: DynamoStore, patient: Runner, proxy: ChaosProxy
) -> None:
    table = shaky.table
    patient.run(fill(table, 4))
    left_over = unprocessed("UnprocessedKeys", {"Keys": keys(4)}, table)
    proxy.use([left_over, left_over])
    assert len(patient.run(table.batch_get(keys(4)))) == 4


def test_deletions_that_were_left_over_are_done_later(
    shaky: DynamoStore, patient: Runner, proxy: ChaosProxy
) -> None:
    table = shaky.table
    patient.run(fill(table, 4))
    doomed = [{"DeleteRequest": {"Key": key}} for key in keys(4)]
    proxy.use([unprocessed("UnprocessedItems", doomed, table)])
    assert patient.run(table.batch_delete(keys(4))) == 4
    assert not patient.run(table.batch_get(keys(4)))


def test_a_batch_that_is_never_done_in_full_is_given_up(
    shaky: DynamoStore, patient: Runner, proxy: ChaosProxy
) -> None:
    left_over = unprocessed("UnprocessedKeys", {"Keys": keys(4)}, shaky.table)
    before = len(proxy.requests)
    proxy.use([*[left_over] * 50])
    with pytest.raises(StorageUnavailable, match="never done in full"):
        patient.run(shaky.table.batch_get(keys(4)))
    assert len(proxy.requests) - before == 11


@pytest.mark.parametrize("act", [DropAnswer(), Reset(), INTERNAL_ERROR], ids=str)
def test_a_read_without_answer_is_sent_again(
    shaky: DynamoStore, patient: Runner, proxy: ChaosProxy, act: Act
) -> None:
    patient.run(fill(shaky.table, 1))
    proxy.use([act, act])
    assert patient.run(shaky.table.get(keys(1)[0])) == item(0)
    proxy.use([*[act] * 9])
    with pytest.raises(StorageUnavailable):
        patient.run(shaky.table.get(keys(1)[0]))


def test_a_transaction_without_answer_is_carried_out_once(
    shaky: DynamoStore, patient: Runner, proxy: ChaosProxy
) -> None:
    table = shaky.table
    proxy.use([DropAnswer(), DropAnswer()])
    patient.run(table.transact([table.updating(key("p", "a"), counting())]))
    assert patient.run(table.get(key("p", "a"), consistent=True))["n"] == {"N": "1"}
    sent = [request.body for request, _ in proxy.requests[-4:-1]]
    assert len({json.loads(body)["ClientRequestToken"] for body in sent}) == 1


def test_a_write_without_answer_is_left_to_its_caller(
    shaky: DynamoStore, patient: Runner, proxy: ChaosProxy
) -> None:
    before = len(proxy.requests)
    proxy.use([DropAnswer()])
    with pytest.raises(StorageUnavailable) as raised:
        patient.run(shaky.table.update(key("p", "a"), counting()))
    assert raised.value.ambiguous
    assert len(proxy.requests) - before == 1


def test_a_call_without_answer_stays_in_doubt_when_the_store_is_closed_meanwhile(
    driver: Runner,
) -> None:
    failures = iter([StorageUnavailable("no answer", ambiguous=True), StoreClosed("closed")])

    async def fail() -> None:
        raise next(failures)

    with pytest.raises(StorageUnavailable, match="no answer") as raised:
        driver.run(repeat(driver.io, fail))
    assert raised.value.ambiguous


def test_all_actions_of_a_transaction_or_none(store: DynamoStore, driver: Runner) -> None:
    table = store.table
    actions = [
        table.putting(item(1)),
        table.deleting(key("p", "gone")),
        table.checking(key("p", "missing"), [PK.exists()]),
    ]
    with pytest.raises(TransactionCanceled) as raised:
        driver.run(table.transact(actions))
    assert [r.code for r in raised.value.reasons] == ["None", "None", "ConditionalCheckFailed"]
    assert not [pk for pk, _ in driver.run(everything(store)) if pk == "p"]
    driver.run(table.transact(actions[:2]))
    assert driver.run(table.get(key("p", "00001"))) == item(1)


def test_conditions_of_single_writes(store: DynamoStore, driver: Runner) -> None:
    table = store.table
    driver.run(table.put(item(1), IS_NEW))
    with pytest.raises(ConditionFailed):
        driver.run(table.put(item(1, n=2), IS_NEW))
    driver.run(table.delete(key("p", "00001")))
    assert driver.run(table.get(key("p", "00001"))) is None


def test_sets_are_changed_member_by_member(store: DynamoStore, driver: Runner) -> None:
    def change(include: str = "", exclude: str = "") -> None:
        names = Field("names")
        term = names.include(include) if include else names.exclude(exclude)
        driver.run(store.table.update(key("p", "a"), [term]))

    for name in ("x", "y", "x"):
        change(include=name)
    change(exclude="nobody")
    assert driver.run(store.table.get(key("p", "a")))["names"] == {"SS": ["x", "y"]}
    change(exclude="x")
    change(exclude="y")
    assert "names" not in driver.run(store.table.get(key("p", "a")))


def test_a_table_that_is_gone_is_an_outage(store: DynamoStore, driver: Runner) -> None:
    driver.run(store.delete_table())
    for asked in (store.ping(), store.entities.read("ns", "key-1"), store.namespaces.active()):
        with pytest.raises(StorageUnavailable, match=store.table.name) as raised:
            driver.run(asked)
        assert not raised.value.retryable
        assert not raised.value.ambiguous


def test_units_are_counted_only_when_asked_for(store: DynamoStore, driver: Runner) -> None:
    driver.run(store.ping())
    assert not store.table.client.meter.units
    costs = Costs(store)
    driver.run(store.ping())
    assert (costs.calls, costs.units()) == ({"GetItem": 1}, 0.5)
