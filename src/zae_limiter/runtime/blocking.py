"""The blocking driver runs a flow to its end in one step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from ..ports.clock import Clock
from .beside import choose_beside
from .parallel import Gather, serial
from .system_clock import ClockedIo

T = TypeVar("T")


def run(flow: Coroutine[Any, Any, T]) -> T:
    """Run a flow whose every wait blocks. A flow that suspends all the same is a bug."""
    try:
        flow.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    flow.close()
    raise RuntimeError(f"{flow!r} suspended under the blocking driver: it awaited something else")


class _BlockingSignal:
    """A blocking signal is a lock that is free once the signal is set. An interrupt in the middle
    of `threading.Event.set` or `wait` could leave the event's own lock taken."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_set = False
        self._gate = threading.Lock()
        self._gate.acquire()

    def set(self) -> bool:
        self._is_set = True
        # A second `set` finds the gate open, and must not fail for that.
        with suppress(RuntimeError):
            self._gate.release()
        return True

    async def wait(self, seconds: float | None, *, for_store: bool = False) -> bool:
        if self._is_set:
            return True
        if seconds is not None and not for_store and self._clock.pass_time(seconds):
            return self._is_set
        return self._gate.acquire(timeout=-1 if seconds is None else seconds) or self._is_set

    async def hold(self) -> None:
        interruption: BaseException | None = None
        while not self._is_set:
            try:
                self._gate.acquire()
            except BaseException as error:
                interruption = interruption or error
        if interruption is not None:
            raise interruption


class BlockingIo(ClockedIo):
    """`BlockingIo` is the `Io` of threads: every call runs in the thread that makes it."""

    def __init__(self, clock: Clock | None = None, gather: Gather = serial) -> None:
        super().__init__(clock)
        self._gather = gather

    def signal(self) -> _BlockingSignal:
        return _BlockingSignal(self._clock)

    async def sleep(self, seconds: float) -> None:
        if not self._clock.pass_time(seconds):
            time.sleep(seconds)  # noqa: ASYNC251 - blocking is what this driver is for

    async def pause(self, seconds: float) -> None:
        await self.sleep(seconds)

    async def offload(self, call: Callable[[], T]) -> T:
        return call()

    async def offload_aside(self, call: Callable[[], T]) -> T:
        return call()

    async def shield(self, flow: Coroutine[Any, Any, T], *, shared: bool = False) -> T:
        beside = choose_beside(shared=shared)
        if beside is None:
            return await flow
        try:
            outcome: T | BaseException = beside(_outcome_of(flow))
        finally:
            # An interrupt may have come before the flow began.
            flow.close()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def gather(self, flows: Sequence[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
        return self._gather([_outcome_of(flow) for flow in flows])

    async def close(self) -> None:
        """Do nothing: this driver holds no threads of its own."""


def _outcome_of(flow: Coroutine[Any, Any, T]) -> Callable[[], T | BaseException]:
    def call() -> T | BaseException:
        try:
            return run(flow)
        except BaseException as error:
            return error

    return call
