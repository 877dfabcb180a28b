"""Virtual time in microseconds, and the flows of many processes that live in it.

The simulator of `zae_limiter.testing` looks for rare interleavings, so it counts in milliseconds
and draws the order of everything. Here a hundred acquires arrive in each millisecond and the order
is that of time, so that figures mean something.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Coroutine, Generator, Sequence
from random import Random
from types import coroutine
from typing import Any, TypeVar

from zae_limiter.core.idempotency import operation_id

T = TypeVar("T")
START_US = 1_700_000_000_000_000
_SECOND_US = 1_000_000


@coroutine
def _suspend(duration_us: int | None) -> Generator[int | None, None, None]:
    """Until this much time has passed, or until woken."""
    yield duration_us


class Task:
    """A coroutine on its way. `turn` tells its waits apart."""

    __slots__ = ("awaited_by", "is_done", "result", "turn", "work")

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self.work = work
        self.turn = 0
        self.is_done = False
        self.result: Any = None
        self.awaited_by: Task | None = None


class Events:
    """What happens when. Whoever is due at the same time goes in the order of asking."""

    def __init__(self) -> None:
        self.now_us = START_US
        self.current: Task | None = None
        self._agenda: list[tuple[int, int, Task, int]] = []
        self._asked = 0

    def spawn(self, work: Coroutine[Any, Any, Any]) -> Task:
        """Start a task now."""
        task = Task(work)
        self._put(task, 0)
        return task

    def wake(self, task: Task) -> None:
        """End a task's wait."""
        self._put(task, 0)

    async def wait_us(self, duration_us: int | None) -> None:
        """Let time pass; with None, until woken."""
        await _suspend(duration_us)

    def run(self) -> None:
        """Go on until nothing is left to happen."""
        agenda = self._agenda
        while agenda:
            at_us, _, task, turn = heapq.heappop(agenda)
            if task.turn == turn and not task.is_done:
                self.now_us = at_us
                self._step(task)

    def _put(self, task: Task, after_us: int) -> None:
        self._asked += 1
        heapq.heappush(self._agenda, (self.now_us + after_us, self._asked, task, task.turn))

    def _step(self, task: Task) -> None:
        task.turn += 1
        self.current = task
        try:
            duration_us = task.work.send(None)
        except StopIteration as ended:
            task.is_done, task.result = True, ended.value
            if task.awaited_by is not None:
                self.wake(task.awaited_by)
        else:
            if duration_us is not None:
                self._put(task, duration_us)


class _VirtualSignal:
    def __init__(self, events: Events) -> None:
        self._events = events
        self._is_set = False
        self._waiter: Task | None = None

    def set(self) -> bool:
        self._is_set = True
        if self._waiter is not None:
            self._events.wake(self._waiter)
        return True

    async def wait(self, seconds: float | None, *, for_store: bool = False) -> bool:
        if not self._is_set:
            self._waiter = self._events.current
            await _suspend(None if seconds is None else round(seconds * _SECOND_US))
            self._waiter = None
        return self._is_set

    async def hold(self) -> None:
        await self.wait(None)


class VirtualIo:
    """`Io` for one process. Its clock is right, and computing takes no time."""

    def __init__(self, events: Events, rng: Random, number: int) -> None:
        self._events = events
        self._rng = rng
        self._number = number
        self._operations = 0

    unsure_ms = 0

    def now_ms(self) -> int:
        return self._events.now_us // 1000

    def correct(self, offset_ms: int, unsure_ms: int = 0) -> None:
        raise AssertionError(f"all clocks are right, and none is off by {offset_ms} ms")

    def operation_id(self) -> str:
        self._operations += 1
        return operation_id(self.now_ms(), f"{self._number:06x}{self._operations:x}")

    def entropy(self) -> int:
        return self._rng.getrandbits(80)

    def signal(self) -> _VirtualSignal:
        return _VirtualSignal(self._events)

    async def sleep(self, seconds: float) -> None:
        await self._events.wait_us(round(seconds * _SECOND_US))

    pause = sleep

    async def offload(self, call: Callable[[], T]) -> T:
        return call()

    offload_aside = offload

    async def shield(self, flow: Coroutine[Any, Any, T], *, shared: bool = False) -> T:
        return await flow

    async def within(
        self, flow: Coroutine[Any, Any, T], seconds: float, patience_s: float | None = None
    ) -> T:
        return await flow

    def left_s(self) -> float:
        return math.inf

    def patience_s(self) -> float:
        return math.inf

    async def gather(self, flows: Sequence[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
        events = self._events
        tasks = [events.spawn(_outcome(flow)) for flow in flows]
        for task in tasks:
            task.awaited_by = events.current
            while not task.is_done:
                await events.wait_us(None)
        return [task.result for task in tasks]

    async def close(self) -> None:
        """Nothing is held."""


async def _outcome(flow: Coroutine[Any, Any, T]) -> T | BaseException:
    try:
        return await flow
    except BaseException as error:
        return error
