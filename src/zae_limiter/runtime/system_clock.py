"""This module is the clock of the machine."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..ports.clock import Clock


class SystemClock:
    """The system clock tells real time, which no program can let pass."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def pass_time(self, seconds: float) -> bool:
        return False


def ahead_by(clock: Clock, offset_ms: int) -> Callable[[], int]:
    """Return the time of a wrong clock, corrected by a known offset."""
    if not offset_ms:
        return clock.now_ms
    return lambda: clock.now_ms() + offset_ms
