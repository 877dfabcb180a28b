"""Checks whether a store keeps the contracts of `ports.repository_protocol`.

The authors of a store run every check under both drivers. With pytest:

    import pytest
    from zae_limiter.testing import CHECKS, DRIVERS, run_check

    @pytest.mark.parametrize("driver", DRIVERS)
    @pytest.mark.parametrize("check", CHECKS, ids=str)
    def test_my_store_conforms(check, driver, tmp_path):
        run_check(check, lambda io: MyStore.open(tmp_path / "limits", io), driver)

A check raises `AssertionError` that tells what was found and what was wanted. Each works
in namespaces of its own, so one store may serve all of them, one after the other or at
the same time. `check.role` tells which role of the store is checked. A store counts usage in its
own writes and keeps `"usage"`, or leaves that to the reader of its stream of changes and keeps
`"stream"`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ..core.exceptions import ValidationError
from ..ports.io import Io
from ..ports.repository_protocol import RepositoryProtocol
from ..runtime.asyncio_driver import AsyncioIo
from ..runtime.blocking import BlockingIo, run
from ..runtime.parallel import Threads
from .checks import (
    audit,
    buckets,
    configs,
    entities,
    namespaces,
    random_writes,
    receipts,
    shards,
    stream,
    usage,
)
from .checks.trial import Trial

OpenStore = Callable[[Io], Coroutine[Any, Any, RepositoryProtocol]]
DRIVERS = ("asyncio", "threads")
_PREFIX = "check_"


@dataclass(frozen=True, slots=True)
class Check:
    """A check is one contract of one role."""

    role: str
    name: str
    body: Callable[[Trial], Coroutine[Any, Any, None]]

    def __str__(self) -> str:
        return f"{self.role}: {self.name}"

    async def run(self, store: RepositoryProtocol, io: Io) -> None:
        """Raise `AssertionError` if the store breaks the contract."""
        await self.body(Trial.begin(store, io))


def _checks_in(role: str, module: ModuleType) -> Iterator[Check]:
    for name, body in vars(module).items():
        if name.startswith(_PREFIX) and inspect.iscoroutinefunction(body):
            yield Check(role, name.removeprefix(_PREFIX).replace("_", " "), body)


CHECKS: tuple[Check, ...] = (
    *_checks_in("buckets", buckets),
    *_checks_in("buckets", shards),
    *_checks_in("buckets", random_writes),
    *_checks_in("receipts", receipts),
    *_checks_in("configs", configs),
    *_checks_in("entities", entities),
    *_checks_in("namespaces", namespaces),
    *_checks_in("audit", audit),
    *_checks_in("usage", usage),
    *_checks_in("stream", stream),
)


def run_check(check: Check, open_store: OpenStore, driver: str = "asyncio") -> None:
    """Open the store, run one check on it, close it."""
    if driver == "asyncio":
        asyncio.run(_run(check, open_store, AsyncioIo()))
    elif driver == "threads":
        run(_run(check, open_store, BlockingIo(gather=Threads())))
    else:
        raise ValidationError("driver", driver, f"must be one of {', '.join(DRIVERS)}")


async def _run(check: Check, open_store: OpenStore, io: Io) -> None:
    store = await open_store(io)
    try:
        await check.run(store, io)
    finally:
        await store.close()
        await io.close()
