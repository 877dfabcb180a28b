"""This module puts a store at the end of a bad line: calls take time, are lost, or arrive too
late."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar, cast

from ..core.exceptions import StorageUnavailable
from ..core.models import BackendCapabilities
from ..ports.repository_protocol import (
    Audit,
    Buckets,
    Configs,
    Entities,
    Namespaces,
    Receipts,
    RepositoryProtocol,
    Usage,
)
from .simulated_io import SimulatedIo

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults are the chances, from 0 to 1, that a call goes wrong, and the longest delay of a call.

    `lost_requests`: the call has no effect, and the caller is told so.
    `lost_answers`: the call takes effect, and the caller does not know.
    `late_requests`: the caller gives up without knowing; the call takes effect afterwards.
    """

    lost_requests: float = 0
    lost_answers: float = 0
    late_requests: float = 0
    max_delay_ms: int = 0


class Line:
    """A line connects one process with the store. While it is cut, no call gets through."""

    def __init__(self, io: SimulatedIo, network: SimulatedIo, rng: Random, faults: Faults) -> None:
        self.is_cut = False
        self._io = io
        self._network = network
        self._rng = rng
        self._faults = faults

    async def carry(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make the call, and hand over to the scheduler before it and after it."""
        await self._travel(self._io)
        if self._loses(self._faults.lost_requests):
            raise StorageUnavailable("the request was lost")
        if self._strikes(self._faults.late_requests):
            self._network.scheduler.spawn(self._network.process, self._arrive_late(call))
            raise StorageUnavailable("no answer in time", ambiguous=True)
        answer = await call()
        await self._travel(self._io)
        if self._loses(self._faults.lost_answers):
            raise StorageUnavailable("the answer was lost", ambiguous=True)
        return answer

    async def _arrive_late(self, call: Callable[[], Awaitable[Any]]) -> None:
        await self._travel(self._network)
        with suppress(StorageUnavailable):
            await call()

    async def _travel(self, io: SimulatedIo) -> None:
        max_ms = self._faults.max_delay_ms
        await io.wait_ms(self._rng.randint(0, max_ms) if max_ms else 0)

    def _loses(self, chance: float) -> bool:
        return self.is_cut or self._strikes(chance)

    def _strikes(self, chance: float) -> bool:
        return chance > 0 and self._rng.random() < chance


class _Role:
    """A role of the store whose calls go over the line."""

    def __init__(self, role: Any, line: Line) -> None:
        self._role = role
        self._line = line

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._role, name)
        if not callable(attribute):
            return attribute

        async def call(*args: Any) -> Any:
            return await self._line.carry(lambda: attribute(*args))

        return call


class DistantStore:
    """A distant store is a store as a process sees it over its line."""

    def __init__(self, store: RepositoryProtocol, line: Line) -> None:
        self.capabilities: BackendCapabilities = store.capabilities
        self.buckets = cast(Buckets, _Role(store.buckets, line))
        self.receipts = cast(Receipts, _Role(store.receipts, line))
        self.configs = cast(Configs, _Role(store.configs, line))
        self.entities = cast(Entities, _Role(store.entities, line))
        self.namespaces = cast(Namespaces, _Role(store.namespaces, line))
        self.audit = cast(Audit, _Role(store.audit, line))
        self.usage = cast(Usage, _Role(store.usage, line))
        self._store = store
        self._line = line

    async def ping(self) -> None:
        await self._line.carry(self._store.ping)

    async def close(self) -> None:
        await self._line.carry(self._store.close)
