"""Where the time comes from."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """A source of time. `testing.ManualClock` is one that tests turn by hand."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""

    def pass_time(self, seconds: float) -> bool:
        """Let this much time pass if that is in this clock's power, and say whether it was.

        A real clock answers False, and the driver waits.
        """
