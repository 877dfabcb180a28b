from __future__ import annotations

from zae_limiter.backends.dynamodb.wire.meter import Meter, OperationUnits


def test_units_are_counted_by_table_and_index() -> None:
    meter = Meter()
    consumed = {
        "TableName": "limits",
        "CapacityUnits": 3.5,
        "Table": {"CapacityUnits": 1.0},
        "GlobalSecondaryIndexes": {"GSI1": {"CapacityUnits": 2.0}},
        "LocalSecondaryIndexes": {"LSI1": {"CapacityUnits": 0.5}},
    }
    meter.count_units("UpdateItem", {"ConsumedCapacity": consumed})
    meter.count_units("UpdateItem", {"ConsumedCapacity": consumed})
    assert meter.units == {
        OperationUnits("UpdateItem", "limits", ""): 2.0,
        OperationUnits("UpdateItem", "limits", "GSI1"): 4.0,
        OperationUnits("UpdateItem", "limits", "LSI1"): 1.0,
    }


def test_units_of_a_batch_are_counted_for_each_table() -> None:
    meter = Meter()
    consumed = [
        {"TableName": "a", "CapacityUnits": 1.0},
        {"TableName": "b", "CapacityUnits": 0.5},
    ]
    meter.count_units("BatchGetItem", {"ConsumedCapacity": consumed})
    assert meter.units == {
        OperationUnits("BatchGetItem", "a", ""): 1.0,
        OperationUnits("BatchGetItem", "b", ""): 0.5,
    }


def test_an_answer_without_units_counts_nothing() -> None:
    meter = Meter()
    meter.count_units("GetItem", {"Item": {}})
    assert meter.units == {}
