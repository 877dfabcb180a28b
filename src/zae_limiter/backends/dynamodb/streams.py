"""The table's stream of changes, read by calls to DynamoDB Streams.

A stream keeps a record for 24 hours. An iterator lives for 15 minutes, and each page has the
next one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ...core.exceptions import InfrastructureNotFoundError, ValidationError
from ...ports.io import Io
from ...ports.stream import IteratorExpired, StreamPage, StreamShard
from .lifecycle import describe_dynamo_table
from .stream_records import decode_records, label_of, number_of, written_ms
from .table import Table
from .wire.client import DynamoClient
from .wire.connect import signed
from .wire.credentials import Access
from .wire.edge import Limits
from .wire.errors import RequestInvalid, ResourceMissing
from .wire.server_clock import ServerClock

logger = logging.getLogger("zae_limiter")

BOTH_IMAGES = "NEW_AND_OLD_IMAGES"
_RECORDS_PER_PAGE = 1000
# A page ends at a megabyte, or somewhat below.
_FULL_PAGE_BYTES = 512 * 1024
# A page holds up to a megabyte, and may take its time.
_LIMITS = Limits(connect_timeout_s=5, read_timeout_s=20)
# A stream that was asked for with its table has the table's time, more or less.
_SAME_MOMENT_S = 1.0
_TRIMMED = "TrimmedDataAccessException"
_EXPIRED = {_TRIMMED, "ExpiredIteratorException"}


class DynamoStream:
    """The streams of one table, as one stream of changes.

    A stream that is switched off keeps its records for a day; one that is switched on again has a
    new label, and its records come after those of all labels before. A shard is called by label
    and id.
    """

    def __init__(self, table: Table, client: DynamoClient) -> None:
        self._table = table
        self._client = client
        self._arns: dict[str, str] = {}
        self._trimmed: set[str] = set()
        self._view: str | None = BOTH_IMAGES

    async def shards(self) -> list[StreamShard]:
        described = await _describe(self._table)
        self._note(await self._list(), _view_of(described))
        made_s: float = described["CreationDateTime"]
        found: list[StreamShard] = []
        for label, arn in sorted(self._arns.items()):
            older = frozenset(shard.shard_id for shard in found)
            for said in await self._shards_of(arn, made_s):
                parent_id = said.get("ParentShardId")
                after = older if parent_id is None else older | {f"{label}#{parent_id}"}
                last_id = said.get("SequenceNumberRange", {}).get("EndingSequenceNumber")
                found.append(StreamShard(f"{label}#{said['ShardId']}", after, last_id))
        return found

    async def _list(self) -> dict[str, str]:
        found: dict[str, str] = {}
        start: dict[str, str] = {}
        while True:
            request = {"TableName": self._table.name, **start}
            said = await self._client.call("ListStreams", request)
            found |= {label_of(each["StreamArn"]): each["StreamArn"] for each in said["Streams"]}
            last = said.get("LastEvaluatedStreamArn")
            if not last:
                return found
            start = {"ExclusiveStartStreamArn": last}

    def _note(self, listed: dict[str, str], view: str | None) -> None:
        new = sorted(listed.keys() - self._arns.keys())
        if self._arns and new:
            logger.warning("Table %s has a new stream: %s", self._table.name, ", ".join(new))
        if view not in (self._view, BOTH_IMAGES):
            logger.error("Table %s has no stream with both images: %s", self._table.name, view)
        self._arns, self._view = listed, view

    async def _shards_of(self, arn: str, made_s: float) -> list[dict[str, Any]]:
        """Return the shards of a stream: none where the stream is gone, lacks images, or is of a
        table of this name that was deleted."""
        found: list[dict[str, Any]] = []
        start: dict[str, str] = {}
        while True:
            try:
                answer = await self._client.call("DescribeStream", {"StreamArn": arn, **start})
            except ResourceMissing:
                return []
            said = answer["StreamDescription"]
            is_foreign = said.get("CreationRequestDateTime", made_s) < made_s - _SAME_MOMENT_S
            if is_foreign or said.get("StreamViewType") != BOTH_IMAGES:
                return []
            found += said["Shards"]
            last = said.get("LastEvaluatedShardId")
            if not last:
                return found
            start = {"ExclusiveStartShardId": last}

    async def begin(self, shard_id: str, after_id: str | None) -> str | None:
        if after_id is not None and shard_id not in self._trimmed:
            kind = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": after_id}
            try:
                return await self._iterator(shard_id, kind)
            except RequestInvalid as error:
                # The record is kept no more, or the checkpoint names none of this shard.
                logger.warning("Shard %s is read from its oldest record on: %s", shard_id, error)
        self._trimmed.discard(shard_id)
        return await self._iterator(shard_id, {"ShardIteratorType": "TRIM_HORIZON"})

    async def _iterator(self, shard_id: str, kind: dict[str, str]) -> str | None:
        label, _, bare_id = shard_id.partition("#")
        request = {"StreamArn": self._arns[label], "ShardId": bare_id, **kind}
        try:
            answer = await self._client.call("GetShardIterator", request)
        except ResourceMissing:
            return None
        iterator: str = answer["ShardIterator"]
        return iterator

    async def read(self, shard_id: str, iterator: str) -> StreamPage:
        request = {"ShardIterator": iterator, "Limit": _RECORDS_PER_PAGE}
        try:
            answer = await self._client.call("GetRecords", request)
        except ResourceMissing as error:
            raise IteratorExpired from error
        except RequestInvalid as error:
            if error.code not in _EXPIRED:
                raise
            if error.code == _TRIMMED:
                logger.warning("Shard %s is read from its oldest record on: %s", shard_id, error)
                self._trimmed.add(shard_id)
            raise IteratorExpired from error
        return _page(answer, shard_id.partition("#")[0])

    async def close(self) -> None:
        """Close the connections. Closing twice does nothing."""
        await self._client.close()


def _page(answer: dict[str, Any], label: str) -> StreamPage:
    records = answer["Records"]
    return StreamPage(
        decode_records(records, label),
        len(records),
        *_last(records),
        answer.get("NextShardIterator"),
        _is_full(records),
    )


def _is_full(records: Sequence[Any]) -> bool:
    if len(records) >= _RECORDS_PER_PAGE:
        return True
    size_bytes = 0
    for record in records:
        with suppress(KeyError, TypeError):
            size_bytes += record["dynamodb"]["SizeBytes"]
    return size_bytes >= _FULL_PAGE_BYTES


def _last(records: Sequence[Any]) -> tuple[str | None, int | None]:
    """Number and time of the last record that has both."""
    for record in reversed(records):
        with suppress(KeyError, TypeError, ValueError):
            return number_of(record["dynamodb"]), written_ms(record["dynamodb"])
    return None, None


async def open_stream(
    table: Table, *, blocking: bool, region: str | None = None, endpoint_url: str | None = None
) -> DynamoStream:
    """Open the stream of a table. It must have the images before and after each change."""
    view = _view_of(await _describe(table))
    if view != BOTH_IMAGES:
        raise ValidationError(
            "stream", view, f"table {table.name} needs a stream of the view type {BOTH_IMAGES}"
        )
    client = _streams_client(table.io, Access(region, endpoint_url, service=_SERVICE), blocking)
    return DynamoStream(table, client)


async def _describe(table: Table) -> dict[str, Any]:
    said = await describe_dynamo_table(table)
    if said is None:
        raise InfrastructureNotFoundError(table.name, "the table is gone")
    return said


def _view_of(described: dict[str, Any]) -> str | None:
    """The view type of the stream that is switched on; None when none is."""
    view: str | None = described.get("StreamSpecification", {}).get("StreamViewType")
    return view


_SERVICE = "dynamodbstreams"


def _streams_client(io: Io, access: Access, blocking: bool) -> DynamoClient:
    clock = ServerClock()
    transport = signed(io, clock, access, blocking=blocking, limits=_LIMITS)
    return DynamoClient(io, transport, clock, total_s=_LIMITS.total_s)
