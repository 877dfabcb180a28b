"""A server of DynamoDB Streams whose one shard gets records at a steady rate.

The servers that can be had here make and deliver some hundred records a second on two cores, and
a reader is to be measured with more. This one only hands them out: pages end at a thousand records
or a megabyte, as DynamoDB's do, and no record is to be had before its time.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Any

from .stream_records import records

_ARN = "arn:aws:dynamodb:us-east-1:1:table/{}/stream/2024-05-01T10:00:00.000"
_SHARD = "shardId-1"
# Two images of a bucket with two limits, as DynamoDB counts them.
_RECORD_BYTES = 1200
_PAGE_RECORDS = min(1000, 1024 * 1024 // _RECORD_BYTES)


class Tape:
    """So many records a second, in turn by each entity, from the moment of `begin` on."""

    def __init__(self, table_name: str, entities: int) -> None:
        self.url = ""
        self.entities = entities
        self._arn = _ARN.format(table_name)
        self._began_s = 0.0
        self._first = self._end = 0
        self._rate = 1
        self._changes = [each["dynamodb"] for each in records(entities, entities)]

    def begin(self, rate: int, seconds: float) -> None:
        """Go on from the last record, at this rate and for so long."""
        self._first, self._rate, self._began_s = self._end, rate, time.time()
        self._end += round(rate * seconds)

    def time_of(self, number: int) -> float:
        """When a record of this run could be had first."""
        return self._began_s + (number - self._first) / self._rate

    def turns(self) -> range:
        """The numbers of all records of this run that the first entity makes."""
        first = -(-self._first // self.entities) * self.entities
        return range(first, self._end, self.entities)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer readers for the length of a block."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
                asked = json.loads(await reader.readexactly(int(fields["content-length"])))
                body = self._answer(fields["x-amz-target"].rpartition(".")[2], asked).encode()
                date = formatdate(usegmt=True)
                writer.write(
                    f"HTTP/1.1 200 OK\r\ndate: {date}\r\ncontent-length: {len(body)}\r\n"
                    "content-type: application/x-amz-json-1.0\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        except (asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _answer(self, operation: str, asked: dict[str, Any]) -> str:
        if operation == "getrecords":
            return self._page(int(asked["ShardIterator"]))
        if operation == "getsharditerator":
            return json.dumps({"ShardIterator": asked.get("SequenceNumber", "0")})
        if operation == "liststreams":
            return json.dumps({"Streams": [{"StreamArn": self._arn}]})
        assert operation == "describestream", operation
        shards = [{"ShardId": _SHARD, "SequenceNumberRange": {"StartingSequenceNumber": "1"}}]
        described = {"Shards": shards, "StreamViewType": "NEW_AND_OLD_IMAGES"}
        return json.dumps({"StreamDescription": described})

    def _page(self, position: int) -> str:
        made = self._first + int((time.time() - self._began_s) * self._rate) + 1
        end = min(made, self._end, position + _PAGE_RECORDS)
        found = ", ".join(self._record(number) for number in range(position, end))
        return f'{{"Records": [{found}], "NextShardIterator": "{max(position, end)}"}}'

    def _record(self, number: int) -> str:
        change = {
            **self._changes[number % self.entities],
            "SequenceNumber": str(number + 1),
            "ApproximateCreationDateTime": int(self.time_of(number)),
            "SizeBytes": _RECORD_BYTES,
        }
        return json.dumps({"eventName": "MODIFY", "dynamodb": change})
