"""The table's stream of changes, read by calls to DynamoDB Streams.

A stream keeps a record for 24 hours. An iterator lives for 15 minutes, and each page has the
next one.
"""

from __future__ import annotations

import logging
from typing import Any

from ...core.exceptions import InfrastructureNotFoundError, ValidationError
from ...ports.io import Io
from ...ports.stream import IteratorExpired, StreamPage, StreamShard
from .stream_records import decode_records, label_of, written_ms
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
# A page holds up to a megabyte, and may take its time.
_LIMITS = Limits(connect_timeout_s=5, read_timeout_s=20)
_TRIMMED = "TrimmedDataAccessException"
_EXPIRED = {_TRIMMED, "ExpiredIteratorException"}


class DynamoStream:
    """The stream of one table."""

    def __init__(self, client: DynamoClient, arn: str) -> None:
        self._client = client
        self._arn = arn
        self.label = label_of(arn)

    async def shards(self) -> list[StreamShard]:
        found: list[StreamShard] = []
        start: dict[str, str] = {}
        while True:
            said = await self._describe(start)
            found += [StreamShard(s["ShardId"], s.get("ParentShardId")) for s in said["Shards"]]
            last = said.get("LastEvaluatedShardId")
            if not last:
                return found
            start = {"ExclusiveStartShardId": last}

    async def _describe(self, start: dict[str, str]) -> dict[str, Any]:
        try:
            answer = await self._client.call("DescribeStream", {"StreamArn": self._arn, **start})
        except ResourceMissing as error:
            raise InfrastructureNotFoundError(self._arn, "the stream is gone") from error
        said: dict[str, Any] = answer["StreamDescription"]
        return said

    async def begin(self, shard_id: str, after_id: str | None) -> str | None:
        if after_id is not None:
            kind = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": after_id}
            try:
                return await self._iterator(shard_id, kind)
            except RequestInvalid as error:
                if error.code != _TRIMMED:
                    raise
            logger.warning("Records of shard %s after %s may be lost", shard_id, after_id)
        return await self._iterator(shard_id, {"ShardIteratorType": "TRIM_HORIZON"})

    async def _iterator(self, shard_id: str, kind: dict[str, str]) -> str | None:
        request = {"StreamArn": self._arn, "ShardId": shard_id, **kind}
        try:
            answer = await self._client.call("GetShardIterator", request)
        except ResourceMissing:
            return None
        iterator: str = answer["ShardIterator"]
        return iterator

    async def read(self, iterator: str) -> StreamPage:
        request = {"ShardIterator": iterator, "Limit": _RECORDS_PER_PAGE}
        try:
            answer = await self._client.call("GetRecords", request)
        except RequestInvalid as error:
            if error.code in _EXPIRED:
                raise IteratorExpired from error
            raise
        return _page(answer, self.label)

    async def close(self) -> None:
        """Close the connections. Closing twice does nothing."""
        await self._client.close()


def _page(answer: dict[str, Any], label: str) -> StreamPage:
    records = answer["Records"]
    last = records[-1]["dynamodb"] if records else None
    return StreamPage(
        decode_records(records, label),
        len(records),
        None if last is None else last["SequenceNumber"],
        None if last is None else written_ms(last),
        answer.get("NextShardIterator"),
    )


async def open_stream(
    table: Table, *, blocking: bool, region: str | None = None, endpoint_url: str | None = None
) -> DynamoStream:
    """Open the stream of a table. It must have the images before and after each change."""
    said = (await table.client.call("DescribeTable", {"TableName": table.name}))["Table"]
    view = said.get("StreamSpecification", {}).get("StreamViewType")
    if view != BOTH_IMAGES:
        raise ValidationError(
            "stream", view, f"table {table.name} needs a stream of the view type {BOTH_IMAGES}"
        )
    client = _streams_client(table.io, Access(region, endpoint_url, service=_SERVICE), blocking)
    return DynamoStream(client, said["LatestStreamArn"])


_SERVICE = "dynamodbstreams"


def _streams_client(io: Io, access: Access, blocking: bool) -> DynamoClient:
    clock = ServerClock()
    return DynamoClient(io, signed(io, clock, access, blocking=blocking, limits=_LIMITS), clock)
