"""This module is the `Io` of one simulated process, whose clock may be wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, TypeVar

from ..core.idempotency import operation_id
from .simulated_scheduler import Killed, Process, Scheduler, Task, Wait, hand_over

T = TypeVar("T")


def _whole_ms(seconds: float) -> int:
    """Round up to milliseconds, but not for the rounding error of a division that made the
    seconds."""
    return math.ceil(round(seconds * 1000, 6))


class _SimulatedSignal:
    def __init__(self, io: SimulatedIo) -> None:
        self._io = io
        self._is_set = False
        self._waiter: Task | None = None

    def set(self) -> bool:
        self._is_set = True
        if self._waiter is not None:
            self._io.scheduler.wake(self._waiter)
        return True

    async def wait(self, seconds: float | None, *, for_store: bool = False) -> bool:
        return await self._wait(None if seconds is None else _whole_ms(seconds), cancellable=True)

    async def hold(self) -> None:
        await self._wait(None, cancellable=False)

    async def _wait(self, limit_ms: int | None, *, cancellable: bool) -> bool:
        self._waiter = self._io.scheduler.current
        await self._io.wait_ms(0 if self._is_set else limit_ms, cancellable=cancellable)
        self._waiter = None
        return self._is_set


class SimulatedIo:
    """`SimulatedIo` is the `Io` of one process; everything in it follows from the seed."""

    def __init__(self, scheduler: Scheduler, rng: Random, number: int, ahead_ms: int = 0) -> None:
        self.scheduler = scheduler
        self.process = Process()
        self.ahead_ms = ahead_ms
        self.unsure_ms = 0
        self._rng = rng
        self._number = number
        self._operations = 0

    def now_ms(self) -> int:
        return self.scheduler.now_ms + self.ahead_ms

    def correct(self, offset_ms: int, unsure_ms: int = 0) -> None:
        self.ahead_ms += offset_ms
        self.unsure_ms = unsure_ms

    def operation_id(self) -> str:
        self._operations += 1
        return operation_id(self.now_ms(), f"{self._number:06x}{self._operations:x}")

    def entropy(self) -> int:
        return self._rng.getrandbits(80)

    def signal(self) -> _SimulatedSignal:
        return _SimulatedSignal(self)

    async def sleep(self, seconds: float) -> None:
        await self.wait_ms(_whole_ms(seconds), cancellable=True)

    async def pause(self, seconds: float) -> None:
        await self.wait_ms(_whole_ms(seconds))

    async def offload(self, call: Callable[[], T]) -> T:
        await self.wait_ms(0)
        answer = call()
        await self.wait_ms(0)
        return answer

    offload_aside = offload

    async def shield(self, flow: Coroutine[Any, Any, T], *, shared: bool = False) -> T:
        task = self.scheduler.current
        assert task is not None
        before, task.is_shielded = task.is_shielded, True
        try:
            return await flow
        finally:
            task.is_shielded = before

    async def within(
        self, flow: Coroutine[Any, Any, T], seconds: float, patience_s: float | None = None
    ) -> T:
        return await flow

    def left_s(self) -> float:
        return math.inf

    def patience_s(self) -> float:
        return math.inf

    async def gather(self, flows: Sequence[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
        if not self.process.is_alive:
            for flow in flows:
                flow.close()
            raise Killed
        scheduler = self.scheduler
        tasks = [scheduler.spawn(self.process, flow, scheduler.current) for flow in flows]
        return [await scheduler.join(task) for task in tasks]

    async def close(self) -> None:
        """Do nothing: a simulated process holds no threads."""

    async def wait_ms(self, duration_ms: int | None, *, cancellable: bool = False) -> None:
        """Hand over to the scheduler, and go on after this much virtual time or, with None, when
        woken."""
        if not self.process.is_alive:
            raise Killed
        until_ms = None if duration_ms is None else self.scheduler.now_ms + duration_ms
        await hand_over(Wait(until_ms, cancellable))
