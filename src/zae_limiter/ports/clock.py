"""This module is the port to a source of time."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Clock(Protocol):
    """A clock is a source of time. Tests move `testing.ManualClock` by hand."""

    def now_ms(self) -> int:
        """Return the milliseconds since the epoch."""

    def pass_time(self, seconds: float) -> bool:
        """Let this much time pass if this clock can, and return whether it did.

        A real clock returns False, and the driver waits.
        """
