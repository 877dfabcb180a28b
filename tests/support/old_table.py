"""A table that an older version left, and a way to look into it."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner, Result

from tests.support.dynamodb import get, new_name
from tests.support.old_tables import Record
from tests.support.servers.processes import Server
from zae_limiter import RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.backends.dynamodb.schema import key
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.backends.dynamodb.wire.values import from_item, to_item
from zae_limiter.cli import cli
from zae_limiter.runtime.blocking import run

_BATCH = 25


class OldTable:
    """A table that an older version left, and a way to look into it."""

    def __init__(self, server: Server) -> None:
        self.place: dict[str, Any] = {
            "stack": new_name(),
            "region": server.region,
            "endpoint_url": server.url,
        }
        self._admin = SyncRepository.open(**self.place)
        store = self._admin.scope.store
        assert isinstance(store, DynamoStore)
        self.store, self.namespace_id = store, self._admin.namespace_id
        self.now_ms = self._admin.scope.io.now_ms()

    def forget_namespaces(self) -> None:
        """Leave nothing that a table had before namespaces came."""
        for pk, sk in self.items():
            run(self.store.table.delete(key(pk, sk)))

    def turn_stream_off(self) -> None:
        """Have no stream: dynoxide takes the longer for a write, the more records a stream has."""
        setting = {"TableName": self.store.table.name}
        off = {**setting, "StreamSpecification": {"StreamEnabled": False}}
        run(self.store.table.client.call("UpdateTable", off))

    def be_of(self, schema: str) -> None:
        self._admin.set_version_record(schema)

    def put(self, *records: Record) -> None:
        """Write records, as many at once as DynamoDB takes."""
        for start in range(0, len(records), _BATCH):
            puts = [{"PutRequest": {"Item": to_item(r)}} for r in records[start : start + _BATCH]]
            request = {"RequestItems": {self.store.table.name: puts}}
            answer = run(self.store.table.call("BatchWriteItem", request))
            assert not answer.get("UnprocessedItems")

    def items(self) -> dict[tuple[str, str], dict[str, Any]]:
        found: list[dict[str, Any]] = []
        request: dict[str, Any] = {"TableName": self.store.table.name, "ConsistentRead": True}
        while True:
            page = run(self.store.table.call("Scan", request))
            found += map(from_item, page["Items"])
            if "LastEvaluatedKey" not in page:
                return {(item["PK"], item["SK"]): item for item in found}
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def record(self) -> dict[str, Any]:
        found = run(get(self.store, "_/SYSTEM#", "#VERSION"))
        assert found is not None
        return found

    def connect(self, **options: Any) -> SyncRepository:
        patience: dict[str, Any] = {"connect_timeout": 60, "read_timeout": 60}
        return SyncRepository.connect(**self.place, **patience, **options)

    def migrate(self, *options: str, typed: str | None = None, url: str | None = None) -> Result:
        place = ("--name", self.place["stack"], "--region", self.place["region"])
        args = ["migrate", *place, "--endpoint-url", url or self.place["endpoint_url"], *options]
        return CliRunner().invoke(cli, args, input=typed, env={"ZAEL_URL": None})

    def close(self) -> None:
        self._admin.delete_table()
        self._admin.close()


def takes(limiter: SyncRateLimiter, entity_id: str = "key-1", **amounts: int) -> bool:
    try:
        with limiter.acquire(entity_id, "gpt-4", amounts):
            return True
    except RateLimitExceeded:
        return False


def old_keys(table: OldTable) -> list[tuple[str, str]]:
    """The keys that no record of today's has."""
    marks = ("#LIMIT#", "#BUCKET#")
    return [k for k, v in table.items().items() if "/" not in k[0][:12] or k[1].startswith(marks)]
