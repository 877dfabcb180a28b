"""A map that keeps the newest entries and drops the oldest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from .fork_safety import new_lock

K = TypeVar("K")
V = TypeVar("V")


class Bounded(Generic[K, V]):
    """A map of at most `max_entries`. Any number of threads may share it."""

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._lock = new_lock()
        self.get = self._entries.get
        # A view, whose truth value is cheaper to ask for than the length.
        self.keys = self._entries.keys()

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: K, value: V) -> None:
        """Add or replace an entry. If the map is full, the entry that was added first goes."""
        with self._lock:
            self._entries[key] = value
            if len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)

    def discard(self, key: K) -> None:
        """Drop an entry, if it is there."""
        with self._lock:
            self._entries.pop(key, None)

    def discard_where(self, doomed: Callable[[K], bool]) -> None:
        """Drop the entries whose keys are `doomed`."""
        with self._lock:
            for key in [key for key in self._entries if doomed(key)]:
                del self._entries[key]

    def clear(self) -> None:
        """Drop every entry."""
        with self._lock:
            self._entries.clear()
