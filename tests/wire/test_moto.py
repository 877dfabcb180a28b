"""Tools that hook into botocore work with `transport="botocore"`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from moto import mock_aws
from moto.server import ThreadedMotoServer

from tests.support.servers.processes import free_port
from tests.support.wire_tables import create_table, key
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.backends.dynamodb.wire.client import DynamoClient
from zae_limiter.backends.dynamodb.wire.connect import open_client
from zae_limiter.backends.dynamodb.wire.errors import ConditionFailed, ResourceMissing
from zae_limiter.backends.dynamodb.wire.values import from_item, to_attribute
from zae_limiter.ports.io import Io
from zae_limiter.runtime.asyncio_driver import AsyncioIo
from zae_limiter.runtime.blocking import BlockingIo, run
from zae_limiter.testing import ManualClock

pytestmark = pytest.mark.slow


async def _use(client: DynamoClient, io: Io) -> None:
    with pytest.raises(ResourceMissing):
        await client.call("GetItem", {"TableName": "no-such-table", "Key": key("a")})
    table = await create_table(client, io)
    write = {
        "TableName": table,
        "Key": key("a"),
        "UpdateExpression": "SET #n = :one",
        "ConditionExpression": "attribute_not_exists(PK)",
        "ExpressionAttributeNames": {"#n": "count"},
        "ExpressionAttributeValues": {":one": to_attribute(1)},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    await client.call("UpdateItem", write)
    with pytest.raises(ConditionFailed) as raised:
        await client.call("UpdateItem", write)
    assert raised.value.item is not None
    assert from_item(raised.value.item)["count"] == 1
    await client.close()


@mock_aws
def test_calls_are_seen_by_mock_aws() -> None:
    io = BlockingIo()
    run(_use(open_client(io, blocking=True, region="us-east-1", transport="botocore"), io))


@pytest.fixture
def moto_url() -> Iterator[str]:
    port = free_port()
    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    yield f"http://127.0.0.1:{port}"
    server.stop()


async def test_calls_reach_a_moto_server(moto_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    io = AsyncioIo()
    client = open_client(
        io, blocking=False, region="us-east-1", endpoint_url=moto_url, transport="botocore"
    )
    await _use(client, io)


@mock_aws
def test_a_limiter_works_on_mock_aws() -> None:
    repository = SyncRepository.open(
        url="dynamodb://us-east-1/limits",
        transport="botocore",
        clock=ManualClock(),
        create=True,
    )
    repository.set_system_defaults([Limit.per_hour("rph", 100)])
    limiter = SyncRateLimiter(repository)
    for _ in range(5):
        with limiter.acquire("key-1", "gpt-4", {"rph": 10}) as lease:
            lease.adjust(rph=-1)
    assert limiter.available("key-1", "gpt-4") == {"rph": 55}
    repository.close()
