"""The clock of the machine."""

from __future__ import annotations

import time


class SystemClock:
    """Real time, which nobody but the world can let pass."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def pass_time(self, seconds: float) -> bool:
        return False
