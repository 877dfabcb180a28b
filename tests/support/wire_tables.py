"""Tests create tables of their own on real servers."""

from __future__ import annotations

import uuid
from typing import Any

from zae_limiter.backends.dynamodb.wire.client import DynamoClient
from zae_limiter.backends.dynamodb.wire.values import to_item
from zae_limiter.ports.io import Io

_POLLS = 600


async def create_table(client: DynamoClient, io: Io) -> str:
    """Create a table of string keys PK and SK with an index GSI1, and wait until it is ready."""
    name = f"wire-{uuid.uuid4().hex}"
    keys = ("PK", "SK", "GSI1PK")
    await client.call(
        "CreateTable",
        {
            "TableName": name,
            "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{"AttributeName": k, "AttributeType": "S"} for k in keys],
            "KeySchema": [
                {"AttributeName": "PK", "KeyType": "HASH"},
                {"AttributeName": "SK", "KeyType": "RANGE"},
            ],
            "GlobalSecondaryIndexes": [
                {
                    "IndexName": "GSI1",
                    "KeySchema": [{"AttributeName": "GSI1PK", "KeyType": "HASH"}],
                    "Projection": {"ProjectionType": "ALL"},
                }
            ],
        },
    )
    for _ in range(_POLLS):
        described = await client.call("DescribeTable", {"TableName": name})
        if described["Table"]["TableStatus"] == "ACTIVE":
            return name
        await io.sleep(0.1)
    raise TimeoutError(f"table {name} did not become active")


def key(name: str) -> dict[str, Any]:
    """Return the key of a test's item."""
    return to_item({"PK": name, "SK": "#"})
