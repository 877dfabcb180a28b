"""The clock of the machine."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..ports.clock import Clock


class SystemClock:
    """Real time, which nobody but the world can let pass."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def pass_time(self, seconds: float) -> bool:
        return False


def ahead_by(clock: Clock, offset_ms: int) -> Callable[[], int]:
    """The time of a clock that is known to be wrong, put right."""
    if not offset_ms:
        return clock.now_ms
    return lambda: clock.now_ms() + offset_ms
