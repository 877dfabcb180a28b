"""A mapping of pairs that keeps the newest owners and forgets the oldest."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

V = TypeVar("V")


class BoundedPairs(Generic[V]):
    """Values by owner and name. All that an owner has is forgotten in one step, however many
    others there are. Any number of threads may read; whoever changes it holds a lock."""

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._owners: OrderedDict[str, dict[str, V]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def get(self, owner: str, name: str) -> V | None:
        """The value, if it is remembered."""
        owned = self._owners.get(owner)
        return None if owned is None else owned.get(name)

    def put(self, owner: str, name: str, value: V) -> None:
        """Remember; the owner that came first goes first when there is too much."""
        owned = self._owners.setdefault(owner, {})
        self._size += name not in owned
        owned[name] = value
        while self._size > self._max_entries and self._owners:
            self._size -= len(self._owners.popitem(last=False)[1])

    def discard(self, owner: str, name: str | None = None) -> None:
        """Forget one value of an owner, or all of them."""
        owned = self._owners.get(owner, {})
        if name in owned:
            del owned[name]
            self._size -= 1
        if name is None or not owned:
            self._size -= len(owned)
            self._owners.pop(owner, None)

    def discard_everywhere(self, name: str) -> None:
        """Forget the values of this name, whoever has them."""
        for owner in [owner for owner, owned in self._owners.items() if name in owned]:
            self.discard(owner, name)

    def clear(self) -> None:
        """Forget everything."""
        self._owners.clear()
        self._size = 0
