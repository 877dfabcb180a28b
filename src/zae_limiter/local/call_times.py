"""The calls of a store, and the time that they took."""

from __future__ import annotations

from collections import Counter, defaultdict

from ..core.stats import StoreTraffic
from .fork_safety import new_lock


class CallTimes:
    """Calls are counted by operation, with their seconds. Threads share the counts."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._calls: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def note(self, operation: str, seconds: float) -> None:
        """Count a call that has ended."""
        with self._lock:
            self._calls[operation] += 1
            self._seconds[operation] += seconds

    def traffic(self) -> StoreTraffic:
        """Return the counts so far. Each call is one request."""
        with self._lock:
            calls = dict(self._calls)
            return StoreTraffic(calls, calls, seconds=dict(self._seconds))
