"""The real stream of a table: read by boto3, and delivered again in any way that is allowed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from random import Random
from typing import Any

import boto3

from tests.simulation.stream_shards import Positions, StreamShard, draw_shards
from tests.support.dynamodb import open_store
from tests.support.servers.tables import OwnTable
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.core.changes import BucketChange
from zae_limiter.core.usage import UsageAddition
from zae_limiter.flows.scope import Scope
from zae_limiter.flows.stream.aggregate import StreamSettings, aggregate
from zae_limiter.runtime.blocking import BlockingIo, run

_EMPTY_PAGES = 3


def read_stream(table: OwnTable) -> tuple[str, list[dict[str, Any]]]:
    """The label of the table's stream, and all its records, parents before children."""
    server = table.server
    client = boto3.client("dynamodbstreams", endpoint_url=server.url, region_name=server.region)
    (stream,) = client.list_streams(TableName=table.name)["Streams"]
    arn = stream["StreamArn"]
    shards = client.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]
    by_id = {shard["ShardId"]: shard for shard in shards}
    ordered = sorted(by_id, key=lambda shard_id: _depth(by_id, shard_id))
    records = [record for shard_id in ordered for record in _records(client, arn, shard_id)]
    return stream["StreamLabel"], records


def _depth(by_id: dict[str, Any], shard_id: str) -> int:
    parent = by_id[shard_id].get("ParentShardId")
    return 0 if parent not in by_id else 1 + _depth(by_id, parent)


def _records(client: Any, arn: str, shard_id: str) -> list[dict[str, Any]]:
    iterator = client.get_shard_iterator(
        StreamArn=arn, ShardId=shard_id, ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    found: list[dict[str, Any]] = []
    empty = 0
    while iterator and empty < _EMPTY_PAGES:
        page = client.get_records(ShardIterator=iterator)
        found += page["Records"]
        empty = 0 if page["Records"] else empty + 1
        iterator = page.get("NextShardIterator")
    return found


class Killed(BaseException):
    """A reader ends where it is."""


class MortalUsage:
    """Snapshots that a reader adds to until it is killed."""

    def __init__(self, store: DynamoStore, additions: int) -> None:
        self.read = store.usage.read
        self.summary = store.usage.summary
        self._add = store.usage.add
        self._left = additions

    async def add(self, addition: UsageAddition) -> bool:
        self._left -= 1
        if self._left < 0:
            raise Killed
        return await self._add(addition)


class Replay:
    """Readers at work on recorded changes: two at a time, killed, and delivered to again."""

    def __init__(self, table: OwnTable, changes: Sequence[BucketChange], seed: int) -> None:
        self.rng = Random(seed)
        self.killed = self.redelivered = self.batches = 0
        self._table = table
        self._positions = Positions(draw_shards(self.rng), changes)
        self._lock = threading.Lock()
        self._failures: list[BaseException] = []

    def run(self, readers: int = 2) -> None:
        threads = [threading.Thread(target=self._try_to_read) for _ in range(readers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _try_to_read(self) -> None:
        try:
            self._read()
        except BaseException as failure:
            self._failures.append(failure)

    def _read(self) -> None:
        io = BlockingIo()
        store = run(open_store(self._table.server, self._table.name, io))
        scope = Scope(store, io, "")
        while (taken := self._take()) is not None:
            shard, first, batch, lifetime = taken
            usage = MortalUsage(store, lifetime)
            try:
                result = run(aggregate(scope, usage, batch, StreamSettings(splits=False)))
            except Killed:
                with self._lock:
                    self.killed += 1
                continue
            assert not result.failed
            with self._lock:
                self._positions.advance(shard, first + len(batch))
        run(store.close())

    def _take(self) -> tuple[StreamShard, int, list[BucketChange], int] | None:
        with self._lock:
            if not self._positions.is_behind():
                return None
            rng = self.rng
            shard = rng.choice(self._positions.readable())
            done = self._positions.of(shard)
            first = max(0, done - rng.choice((0, 0, 5, 50)))
            size = rng.choice((1, 2, 10, 100))
            batch = self._positions.records(shard)[first : first + size]
            self.batches += 1
            self.redelivered += done - first
            lifetime = rng.randint(0, 5) if rng.random() < 0.1 else 1000
            # The order of items in a batch is nobody's promise; that of an item's changes is.
            rng.shuffle(batch)
            return shard, first, batch, lifetime
