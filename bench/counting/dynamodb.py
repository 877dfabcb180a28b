"""Calls to DynamoDB, and the capacity units that the server tells of.

Every call is made to ask for them, whether or not the limiter does. That changes what was
signed, which the server does not check.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

from ..costs import READS, Cost
from .proxy import CountingProxy, Streams

_WRITES = {"BatchWriteItem", "DeleteItem", "PutItem", "TransactWriteItems", "UpdateItem"}
_REFUSALS = ("ConditionalCheckFailedException", "TransactionCanceledException")
# A limiter may remember a refusal for a second, which begins before the request comes by here.
_MEMORY_S = 0.9
_Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """A request or an answer of HTTP."""

    start: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def header(self, name: bytes) -> bytes:
        """Its value, or nothing."""
        return next((value for key, value in self.headers if key.lower() == name), b"")

    def to_bytes(self) -> bytes:
        """As it is sent."""
        lines = [self.start]
        for name, value in self.headers:
            is_length = name.lower() == b"content-length"
            lines.append(name + b": " + (str(len(self.body)).encode() if is_length else value))
        return b"\r\n".join([*lines, b"", self.body])


async def read_message(stream: asyncio.StreamReader) -> Message:
    """The next one. Its length must be told."""
    head = await stream.readuntil(b"\r\n\r\n")
    start, *lines = head[:-4].split(b"\r\n")
    pairs = (line.partition(b":") for line in lines)
    headers = tuple((name.strip(), value.strip()) for name, _, value in pairs)
    length = int(Message(start, headers, b"").header(b"content-length") or 0)
    return Message(start, headers, await stream.readexactly(length))


class DynamoCounter(CountingProxy):
    """Counts calls that read or write items; making tables is not counted."""

    def __init__(self, upstream_url: str) -> None:
        super().__init__(upstream_url)
        self._refused_at_s: dict[str, float] = {}

    async def carry(self, client: Streams, server: Streams) -> None:
        while True:
            request = await read_message(client[0])
            asked_at_s = time.monotonic()
            operation = request.header(b"x-amz-target").rpartition(b".")[2].decode()
            counts = operation in READS or operation in _WRITES
            if counts:
                request = _asking_for_units(request)
            server[1].write(request.to_bytes())
            answer = await read_message(server[0])
            if counts:
                self._count(
                    operation, json.loads(request.body), json.loads(answer.body), asked_at_s
                )
            client[1].write(answer.to_bytes())

    def _count(self, operation: str, asked: _Fields, answer: _Fields, asked_at_s: float) -> None:
        cost = cost_of(operation, answer)
        # A write to an item that is not there yet is not refused for want of tokens.
        if cost.refused and "Item" in answer:
            cost += Cost(again=float(self._is_again(json.dumps(asked["Key"]), asked_at_s)))
        self.total += cost

    def _is_again(self, key: str, asked_at_s: float) -> bool:
        before_s, self._refused_at_s[key] = self._refused_at_s.get(key), asked_at_s
        return before_s is not None and asked_at_s - before_s < _MEMORY_S


def _asking_for_units(request: Message) -> Message:
    body = {**json.loads(request.body), "ReturnConsumedCapacity": "TOTAL"}
    return Message(request.start, request.headers, json.dumps(body).encode())


def cost_of(operation: str, answer: _Fields) -> Cost:
    """What one answer says of its cost."""
    told = answer.get("ConsumedCapacity", [])
    units = sum(each["CapacityUnits"] for each in (told if isinstance(told, list) else [told]))
    is_refused = answer.get("__type", "").endswith(_REFUSALS)
    if operation in READS:
        return Cost(calls=1, rcu=units)
    return Cost(calls=1, wcu=units, refused=float(is_refused))
