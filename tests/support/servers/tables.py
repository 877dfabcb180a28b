"""A limiter's table of its own for the length of a test."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tests.support.servers.processes import Server
from zae_limiter.backends.dynamodb.schema import get_table_definition
from zae_limiter.backends.dynamodb.url import dynamodb_url
from zae_limiter.backends.dynamodb.wire.client import DynamoClient
from zae_limiter.backends.dynamodb.wire.connect import open_client
from zae_limiter.backends.dynamodb.wire.edge import Limits
from zae_limiter.runtime.blocking import BlockingIo, run

# For all that is not about timeouts: a busy machine may take its time.
PATIENT = Limits(connect_timeout_s=60, read_timeout_s=60, breaker_failures=0)
_ACTIVE_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class OwnTable:
    """A table that exists, and a way to look into it that is nobody else's.

    It never expires items: the clock of a test is not that of the server.
    """

    name: str
    server: Server
    client: DynamoClient

    @property
    def url(self) -> str:
        """What `Repository.open` takes."""
        place = dynamodb_url(self.name, self.server.region, self.server.url)
        patience = {
            "connect_timeout": PATIENT.connect_timeout_s,
            "read_timeout": PATIENT.read_timeout_s,
        }
        return f"{place}&{urlencode(patience)}"

    def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Any operation on the table."""
        return run(self.client.call(operation, {"TableName": self.name, **parameters}))

    def items(self) -> list[dict[str, Any]]:
        """Everything that is stored, in the order of keys."""
        found: list[dict[str, Any]] = []
        start: dict[str, Any] = {}
        while True:
            page = self.call("Scan", ConsistentRead=True, **start)
            found += page["Items"]
            if "LastEvaluatedKey" not in page:
                return sorted(found, key=lambda item: (item["PK"]["S"], item["SK"]["S"]))
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def dump(self) -> str:
        """The same as text."""
        return "\n".join(json.dumps(item, sort_keys=True) for item in self.items())


@contextmanager
def table_client(server: Server) -> Iterator[DynamoClient]:
    """A client that makes tables and looks into them."""
    client = open_client(
        BlockingIo(),
        blocking=True,
        region=server.region,
        endpoint_url=server.url,
        transport="wire",
        limits=PATIENT,
    )
    try:
        yield client
    finally:
        run(client.close())


@contextmanager
def own_table(server: Server, client: DynamoClient | None = None) -> Iterator[OwnTable]:
    """Make a table, and delete it at the end; with a client of its own unless one is given."""
    if client is None:
        with table_client(server) as made, own_table(server, made) as table:
            yield table
        return
    table = OwnTable(f"zael-{uuid.uuid4().hex}", server, client)
    run(client.call("CreateTable", get_table_definition(table.name)))
    wait_until_active(table)
    try:
        yield table
    finally:
        table.call("DeleteTable")


def wait_until_active(table: OwnTable) -> None:
    deadline = time.monotonic() + _ACTIVE_TIMEOUT_S
    while table.call("DescribeTable")["Table"]["TableStatus"] != "ACTIVE":
        if time.monotonic() > deadline:
            raise TimeoutError(f"table {table.name} did not become active")
        time.sleep(0.1)
