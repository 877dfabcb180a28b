"""Client CPU for one `UpdateItem`: our wire beside boto3's and aiobotocore's clients.

    python -m bench.wire_cpu

Starts a DynamoDB of its own. Reports the best of several rounds, because other work on the
machine only ever adds.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

from tests.support.servers.processes import start

from zae_limiter.backends.dynamodb.wire.client import DynamoClient
from zae_limiter.backends.dynamodb.wire.connect import open_client
from zae_limiter.backends.dynamodb.wire.values import to_attribute, to_item
from zae_limiter.backends.store_url import TRANSPORTS
from zae_limiter.runtime.asyncio_driver import AsyncioIo
from zae_limiter.runtime.blocking import BlockingIo, run

_ROUNDS = 5
_CALLS = 1000
_TABLE = "wire-cpu"
_CREATE = {
    "TableName": _TABLE,
    "BillingMode": "PAY_PER_REQUEST",
    "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "PK", "AttributeType": "S"}],
}
# About what an acquire of two limits sends, and what it gets back.
_FIELDS = [f"b_{limit}_{field}" for limit in ("rpm", "tpm") for field in ("tk", "tc", "cp", "ra")]
_UPDATE = {
    "TableName": _TABLE,
    "Key": to_item({"PK": "a"}),
    "UpdateExpression": "ADD " + ", ".join(f"#{n} :{n}" for n in range(len(_FIELDS))),
    "ConditionExpression": "attribute_not_exists(#8) OR #0 >= :0",
    "ExpressionAttributeNames": {f"#{n}": name for n, name in enumerate([*_FIELDS, "gone"])},
    "ExpressionAttributeValues": {f":{n}": to_attribute(1000) for n in range(len(_FIELDS))},
    "ReturnValues": "ALL_NEW",
    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
}


def main() -> None:
    os.environ |= {"AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST", "AWS_SECRET_ACCESS_KEY": "test"}
    with start("dynoxide") as server:
        place: dict[str, Any] = {"region": server.region, "endpoint_url": server.url}
        maker = open_client(BlockingIo(), blocking=True, **place)
        run(maker.call("CreateTable", _CREATE))
        run(maker.close())
        best: dict[str, float] = {}
        for _ in range(_ROUNDS):
            for name, measure in _measures(place).items():
                best[name] = min(best.get(name, float("inf")), measure())
    for name, cpu_s in best.items():
        print(f"{name:32} {1e6 * cpu_s / _CALLS:7.0f} us of CPU per UpdateItem")


def _measures(place: dict[str, Any]) -> dict[str, Callable[[], float]]:
    measures: dict[str, Callable[[], float]] = {}
    for transport in TRANSPORTS:
        choice = {**place, "transport": transport}
        measures[f"blocking, {transport}"] = lambda c=choice: _blocking(c)  # type: ignore[misc]
        for tasks in (1, 20):
            measures[f"asyncio, {transport}, {tasks} at a time"] = (
                lambda c=choice, t=tasks: asyncio.run(_asyncio(c, t))  # type: ignore[misc]
            )
    return measures


def _blocking(choice: dict[str, Any]) -> float:
    client = open_client(BlockingIo(), blocking=True, **choice)
    run(client.call("UpdateItem", _UPDATE))
    started_s = time.process_time()
    for _ in range(_CALLS):
        run(client.call("UpdateItem", _UPDATE))
    spent_s = time.process_time() - started_s
    run(client.close())
    return spent_s


async def _asyncio(choice: dict[str, Any], tasks: int) -> float:
    client = open_client(AsyncioIo(), blocking=False, **choice)
    await asyncio.gather(*(_some(client, 1) for _ in range(tasks)))
    started_s = time.process_time()
    await asyncio.gather(*(_some(client, _CALLS // tasks) for _ in range(tasks)))
    spent_s = time.process_time() - started_s
    await client.close()
    return spent_s


async def _some(client: DynamoClient, calls: int) -> None:
    for _ in range(calls):
        await client.call("UpdateItem", _UPDATE)


if __name__ == "__main__":
    main()
