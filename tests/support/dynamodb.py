"""Stores in real tables, by both drivers."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.servers.chaos import THROTTLED, ChaosProxy, Pass
from tests.support.servers.processes import Server
from tests.support.servers.tables import PATIENT
from zae_limiter import SyncRepository
from zae_limiter.backends.dynamodb.opening import Creation
from zae_limiter.backends.dynamodb.schema import key
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.backends.dynamodb.wire.values import from_item, to_item
from zae_limiter.core.audit import AuditEvent, ulid
from zae_limiter.core.exceptions import StorageUnavailable
from zae_limiter.core.windows import iso_ms
from zae_limiter.ports.clock import Clock
from zae_limiter.ports.io import Io
from zae_limiter.runtime.asyncio_driver import AsyncioIo
from zae_limiter.runtime.blocking import BlockingIo, run
from zae_limiter.runtime.parallel import Threads

NS = "ns-1"
# Other servers reckon batches and transactions in their own way, and seal no refusal with a
# checksum.
IS_EXACT = (
    "ZAEL_TEST_DYNAMODB_URL" not in os.environ
    and os.environ.get("ZAEL_TEST_DYNAMODB_SERVER", "dynoxide") == "dynoxide"
)


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs coroutines to their end, by one of the drivers."""

    io: Io
    run: Callable[[Coroutine[Any, Any, Any]], Any]

    @property
    def blocking(self) -> bool:
        return isinstance(self.io, BlockingIo)


@contextmanager
def runner(name: str, clock: Clock | None = None) -> Iterator[Runner]:
    """`asyncio` with one event loop for the length of the block, or `threads`."""
    if name == "threads":
        yield Runner(BlockingIo(clock, Threads()), run)
        return
    io = AsyncioIo(clock)
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
        limits=PATIENT,
        create=create,
    )


def event(io: Io, entity_id: str = "key-1", action: str = "limits_set") -> AuditEvent:
    """A new audit event."""
    now_ms = io.now_ms()
    return AuditEvent(ulid(now_ms, io.entropy()), iso_ms(now_ms), action, entity_id, "admin")


def interrupted(
    driver: Runner, proxy: ChaosProxy, passed: int, flow: Coroutine[Any, Any, Any]
) -> StorageUnavailable | None:
    """How a flow fails when only so many of its requests pass; None when those suffice."""
    proxy.use([*[Pass()] * passed, *[THROTTLED] * 50])
    try:
        driver.run(flow)
    except StorageUnavailable as error:
        return error
    finally:
        proxy.use(())
    return None


async def put(store: DynamoStore, **values: Any) -> None:
    """Write an item as some other client would."""
    await store.table.put(to_item(values))


def replace_record(
    repository: SyncRepository, old: tuple[str, str], new: dict[str, Any] | None = None
) -> None:
    """Delete a record of a table and, if one is given, write another."""
    store = repository.scope.store
    assert isinstance(store, DynamoStore)
    run(store.table.delete(key(*old)))
    if new is not None:
        run(put(store, **new))


async def get(store: DynamoStore, pk: str, sk: str) -> dict[str, Any] | None:
    """Read an item as some other client would."""
    item = await store.table.get(key(pk, sk), consistent=True)
    return None if item is None else from_item(item)


async def everything(store: DynamoStore) -> dict[tuple[str, str], dict[str, Any]]:
    """All items of the table by their keys."""
    answer = await store.table.call("Scan", {"TableName": store.table.name})
    items = [from_item(item) for item in answer["Items"]]
    return {(item["PK"], item["SK"]): item for item in items}


class Costs:
    """What a block asked of DynamoDB."""

    def __init__(self, store: DynamoStore) -> None:
        self._meter = store.table.client.meter
        self._calls = Counter(self._meter.calls)
        self._units = dict(self._meter.units)
        store.table.measured = True

    @property
    def calls(self) -> dict[str, int]:
        """By operation."""
        return dict(Counter(self._meter.calls) - self._calls)

    def units(self, index: str | None = None) -> float:
        """Capacity units; with an index, of that alone. The table's own are those of ''."""
        spent = {c: u - self._units.get(c, 0) for c, u in self._meter.units.items()}
        return sum(units for charge, units in spent.items() if index in (None, charge.index_name))
