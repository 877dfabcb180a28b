"""The clock of the machine, and the part of `Io` that both drivers take from a clock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ..core.idempotency import operation_id
from ..local.deadline import Deadline, current_deadline, left_s, set_deadline
from ..local.steady_time import steady_ms
from ..ports.clock import Clock
from .ids import rising_entropy, unique_suffix

T = TypeVar("T")


class SystemClock:
    """The system clock tells real time, which no program can let pass."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def pass_time(self, seconds: float) -> bool:
        return False


class ClockedIo:
    """The time, corrected by the store's, and ids that begin with it."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock or SystemClock()
        self.now_ms: Callable[[], int] = self._clock.now_ms
        self.unsure_ms = 0

    def correct(self, offset_ms: int, unsure_ms: int = 0) -> None:
        self.unsure_ms = unsure_ms
        now_ms = steady_ms if isinstance(self._clock, SystemClock) else self._clock.now_ms
        self.now_ms = (lambda: now_ms() + offset_ms) if offset_ms else now_ms

    def operation_id(self) -> str:
        return operation_id(self.now_ms(), unique_suffix())

    def entropy(self) -> int:
        return rising_entropy()

    async def within(
        self, flow: Coroutine[Any, Any, T], seconds: float, patience_s: float | None = None
    ) -> T:
        if not isinstance(self._clock, SystemClock):
            # A clock that tests move by hand says nothing about the time that a store takes.
            seconds = patience_s = math.inf
        before = current_deadline()
        patience_s = seconds if patience_s is None else patience_s
        set_deadline(Deadline(time.monotonic() + seconds, patience_s))
        try:
            return await flow
        finally:
            # Not by a token: a generator may be closed in another context.
            set_deadline(before)

    def left_s(self) -> float:
        return left_s()

    def patience_s(self) -> float:
        deadline = current_deadline()
        return math.inf if deadline is None else deadline.patience_s
