"""A clock that only tests turn."""

from __future__ import annotations

import threading

# 2024-01-01T00:00:00Z: the start of an hour, a day, a month and a year.
START_MS = 1_704_067_200_000


class ManualClock:
    """A `Clock` that stands still until it is told otherwise.

        clock = ManualClock()
        repository = await Repository.open(url="memory://", clock=clock)
        clock.advance(60)

    Whatever would wait for time to pass, `acquire(timeout=...)` for example, moves it on
    by that much instead of waiting. Any number of threads may share one.
    """

    def __init__(self, now_ms: int = START_MS) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._now_ms

    def pass_time(self, seconds: float) -> bool:
        """Move on by this much, and say that the time has passed."""
        self.advance(seconds)
        return True

    def advance(self, seconds: float) -> None:
        """Move on, or back if negative, to the nearest millisecond."""
        with self._lock:
            self._now_ms += round(seconds * 1000)

    def set(self, now_ms: int) -> None:
        """Show this time, be it earlier or later."""
        with self._lock:
            self._now_ms = now_ms
