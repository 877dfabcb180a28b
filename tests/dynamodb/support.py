"""Stores in real tables, by both drivers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.servers.processes import Server
from zae_limiter.backends.dynamodb.opening import Creation
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.core.audit import AuditEvent, ulid
from zae_limiter.core.windows import iso_ms
from zae_limiter.ports.io import Io
from zae_limiter.runtime.asyncio_driver import AsyncioIo
from zae_limiter.runtime.blocking import BlockingIo, run
from zae_limiter.runtime.parallel import Threads

T = TypeVar("T")
NS = "ns-1"


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs coroutines to their end, by one of the drivers."""

    io: Io
    run: Callable[[Coroutine[Any, Any, Any]], Any]

    @property
    def blocking(self) -> bool:
        return isinstance(self.io, BlockingIo)


@contextmanager
def runner(name: str) -> Iterator[Runner]:
    """`asyncio` with one event loop for the length of the block, or `threads`."""
    if name == "threads":
        yield Runner(BlockingIo(gather=Threads()), run)
        return
    io = AsyncioIo()
    with asyncio.Runner() as loop:
        yield Runner(io, loop.run)
        loop.run(io.close())


def new_name() -> str:
    """A table name that no other test has."""
    return f"zael-{uuid.uuid4().hex}"


async def open_store(
    server: Server,
    table_name: str,
    io: Io,
    *,
    url: str | None = None,
    create: Creation = "elsewhere",
    transport: str | None = None,
) -> DynamoStore:
    """The store in a table of a server, made if it is missing."""
    return await DynamoStore.open(
        table_name,
        io,
        blocking=isinstance(io, BlockingIo),
        region=server.region,
        endpoint_url=url or server.url,
        transport=transport,
        create=create,
    )


def event(io: Io, entity_id: str = "key-1", action: str = "limits_set") -> AuditEvent:
    """A new audit event."""
    now_ms = io.now_ms()
    return AuditEvent(ulid(now_ms, io.entropy()), iso_ms(now_ms), action, entity_id, "admin")
