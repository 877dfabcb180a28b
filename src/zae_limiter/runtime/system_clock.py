"""The clock of the machine, and the part of `Io` that both drivers take from a clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..core.idempotency import operation_id
from ..ports.clock import Clock
from .ids import rising_entropy, unique_suffix


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

    def correct(self, offset_ms: int) -> None:
        now_ms = self._clock.now_ms
        self.now_ms = (lambda: now_ms() + offset_ms) if offset_ms else now_ms

    def operation_id(self) -> str:
        return operation_id(self.now_ms(), unique_suffix())

    def entropy(self) -> int:
        return rising_entropy()
