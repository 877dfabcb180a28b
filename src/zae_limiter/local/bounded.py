"""A mapping that keeps the newest entries and forgets the oldest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from .forks import new_lock

K = TypeVar("K")
V = TypeVar("V")


class Bounded(Generic[K, V]):
    """Any number of threads may share one."""

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._lock = new_lock()
        self.get = self._entries.get
        # Empty when nothing is there, and sooner said than the length.
        self.keys = self._entries.keys()

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: K, value: V) -> None:
        """Remember; what was put first goes first when there are too many."""
        with self._lock:
            self._entries[key] = value
            if len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)

    def discard(self, key: K) -> None:
        """Forget one entry."""
        with self._lock:
            self._entries.pop(key, None)

    def discard_where(self, doomed: Callable[[K], bool]) -> None:
        """Forget the entries with these keys."""
        with self._lock:
            for key in [key for key in self._entries if doomed(key)]:
                del self._entries[key]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
