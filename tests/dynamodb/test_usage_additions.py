"""Additions to snapshots in DynamoDB: one call each, whatever gets in the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.support.dynamodb import NS, Costs, Runner, get, put
from tests.support.servers.chaos import (
    Act,
    ChaosProxy,
    DropAnswer,
    Pass,
    Reset,
    Truncate,
    service_error,
)
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.core.exceptions import StorageUnavailable, StoredDataError
from zae_limiter.core.usage import UsageAddition, UsageCounts, UsagePart

MAY = datetime(2024, 5, 1, tzinfo=UTC)
PK, SK = f"{NS}/ENTITY#key", "#USAGE#gpt-4#2024-05-01T00:00:00Z"


def sequence(number: int) -> str:
    return f"2024-01-01T00:00:00.000/{number:040}"


def parts(*numbers: int, **tokens: int) -> tuple[UsagePart, ...]:
    milli = {name.replace("_", "."): 1000 * n for name, n in (tokens or {"rpm": 1}).items()}
    return tuple(UsagePart(sequence(number), UsageCounts(milli, 1)) for number in numbers)


def addition(by_shard: Mapping[int, tuple[UsagePart, ...]]) -> UsageAddition:
    return UsageAddition(NS, "key", "gpt-4", "hourly", MAY, 1_800_000_000, by_shard)


async def counted(store: DynamoStore) -> dict[str, Any]:
    item = await get(store, PK, SK)
    assert item is not None
    return item


def test_a_snapshot_is_one_flat_item(store: DynamoStore, driver: Runner) -> None:
    driver.run(store.usage.add(addition({0: parts(1, 2, rpm=3, ttl=1), 5: parts(7, rpm=1)})))
    assert driver.run(counted(store)) == {
        "PK": PK,
        "SK": SK,
        "entity_id": "key",
        "resource": "gpt-4",
        "window": "hourly",
        "window_start": "2024-05-01T00:00:00Z",
        "GSI2PK": f"{NS}/RESOURCE#gpt-4",
        "GSI2SK": "USAGE#2024-05-01T00:00:00Z#key",
        "GSI4PK": NS,
        "GSI4SK": "USAGE#key#gpt-4#2024-05-01T00:00:00Z",
        "ttl": 1_800_000_000,
        "total_events": 3,
        "rpm": 7,
        "#ttl": 2,
        "seq#0": sequence(2),
        "seq#5": sequence(7),
    }


def test_metadata_stays_as_it_was_first_written(store: DynamoStore, driver: Runner) -> None:
    driver.run(store.usage.add(addition({0: parts(1)})))
    driver.run(store.usage.add(replace(addition({0: parts(2)}), expires_at_s=1)))
    assert driver.run(counted(store))["ttl"] == 1_800_000_000


def test_fractions_of_tokens_are_exact(store: DynamoStore, driver: Runner) -> None:
    for shard, milli in enumerate((333, 333, 334, -1, 10**21)):
        part = UsagePart(sequence(1), UsageCounts({"rpm": milli}, 0))
        driver.run(store.usage.add(addition({shard: (part,)})))
    assert driver.run(counted(store))["rpm"] == Decimal("1000000000000000000.999")


def test_an_addition_is_one_call_and_one_unit_after_the_first(
    store: DynamoStore, driver: Runner
) -> None:
    for number, units in ((1, 3), (2, 1), (3, 1)):
        costs = Costs(store)
        by_shard = {0: parts(*range(10 * number, 10 * number + 9), rpm=1, tpm=500)}
        driver.run(store.usage.add(addition(by_shard)))
        assert costs.calls == {"UpdateItem": 1}
        assert costs.units() == units


def test_parts_that_were_counted_meanwhile_take_a_second_call(
    store: DynamoStore, driver: Runner
) -> None:
    driver.run(store.usage.add(addition({0: parts(1, 2)})))
    costs = Costs(store)
    assert driver.run(store.usage.add(addition({0: parts(1, 2, 3), 1: parts(1)})))
    assert costs.calls == {"UpdateItem": 2}
    assert driver.run(counted(store))["rpm"] == 4


@pytest.mark.parametrize("trouble", [DropAnswer(), Reset(), Truncate()], ids=repr)
def test_an_answer_that_is_lost_does_not_count_twice(
    shaky: DynamoStore, patient: Runner, proxy: ChaosProxy, trouble: Act
) -> None:
    proxy.use([trouble, Pass()])
    patient.run(shaky.usage.add(addition({0: parts(1, 2)})))
    found = patient.run(counted(shaky))
    assert (found["rpm"], found["total_events"]) == (2, 2)


def test_a_store_that_never_answers_is_reported(
    shaky: DynamoStore, patient: Runner, proxy: ChaosProxy
) -> None:
    proxy.use([DropAnswer()] * 10)
    with pytest.raises(StorageUnavailable) as raised:
        patient.run(shaky.usage.add(addition({0: parts(1, 2)})))
    assert raised.value.ambiguous
    proxy.use(())
    assert not patient.run(shaky.usage.add(addition({0: parts(1, 2)})))
    assert patient.run(counted(shaky))["rpm"] == 2


@pytest.mark.parametrize(
    "damage",
    [
        {"rpm": "many"},
        {"total_events": "many"},
        {"seq#0": 7},
        {"seq#0": "~"},
        {"seq#0": sequence(3) + "9"},
        {"seq#0": "2024/" + "x" * 40},
    ],
    ids=str,
)
def test_a_snapshot_that_cannot_be_added_to_is_named(
    store: DynamoStore, driver: Runner, damage: dict[str, Any]
) -> None:
    driver.run(store.usage.add(addition({0: parts(1)})))
    item = driver.run(counted(store))
    driver.run(put(store, **{**item, **damage}))
    with pytest.raises(StoredDataError, match="USAGE#gpt-4"):
        driver.run(store.usage.add(addition({0: parts(2)})))


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "KMSAccessDeniedException"),
        (400, "SerializationException"),
        (400, "SomethingNewException"),
        (400, "ValidationException"),
        (404, "UnknownOperationException"),
        (408, "RequestTimeoutException"),
        (409, "ConflictException"),
        (413, "RequestEntityTooLargeException"),
    ],
)
def test_a_refusal_that_is_not_about_the_snapshot_is_a_failure(
    shaky: DynamoStore, patient: Runner, proxy: ChaosProxy, status: int, code: str
) -> None:
    proxy.use([service_error(status, code)] * 100)
    with pytest.raises(StorageUnavailable, match=code):
        patient.run(shaky.usage.add(addition({0: parts(1)})))
    proxy.use(())
    assert patient.run(shaky.usage.add(addition({0: parts(1)})))


def test_an_amount_that_no_number_can_hold_is_named(store: DynamoStore, driver: Runner) -> None:
    with pytest.raises(StoredDataError, match="USAGE#gpt-4"):
        driver.run(store.usage.add(addition({0: parts(1, rpm=10**130)})))


def test_32_shards_and_many_limits_fit_into_one_call(store: DynamoStore, driver: Runner) -> None:
    tokens = {f"limit_{number}": number for number in range(1, 33)}
    by_shard = {shard: parts(1, 2, **tokens) for shard in range(32)}
    driver.run(store.usage.add(addition(by_shard)))
    found = driver.run(counted(store))
    assert found["limit.32"] == 32 * 2 * 32
    assert found["total_events"] == 64
