"""What a process remembers of stored configuration, for a bounded time and in bounded space.

Two layers. Records: one for each slot and entity, present or known to be absent.
Resolutions: what was decided from them for an entity and resource. The system record has
no lifetime of its own: every read of other records brings it along.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..core.hierarchy import SYSTEM_SLOT, ConfigSlot
from ..core.limit import LimitSet
from ..core.models import (
    CacheStats,
    ConfigSource,
    Entity,
    LimiterConfig,
    OnUnavailableAction,
)
from ..core.naming import DEFAULT_RESOURCE

K = TypeVar("K")
V = TypeVar("V")
MAX_ENTRIES = 20_000


@dataclass(frozen=True, slots=True)
class Resolution:
    """What is in force for an entity and resource."""

    limits: LimitSet | None
    source: ConfigSource | None
    on_unavailable: OnUnavailableAction | None
    parent_id: str | None
    cascade: bool


class _Bounded(Generic[K, V]):
    """The newest entries; the oldest goes when there are too many."""

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._entries: OrderedDict[K, tuple[int, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, now_ms: int) -> tuple[int, V] | None:
        """The entry and when it expires; None when it is not there or has expired."""
        entry = self._entries.get(key)
        return entry if entry is not None and now_ms < entry[0] else None

    def put(self, key: K, value: V, expires_at_ms: int) -> None:
        self._entries.pop(key, None)
        self._entries[key] = (expires_at_ms, value)
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)

    def discard_where(self, doomed: Callable[[K], bool]) -> None:
        for key in [key for key in self._entries if doomed(key)]:
            del self._entries[key]

    def clear(self) -> None:
        self._entries.clear()


class ConfigCache:
    """Configuration as this process last saw it. Any number of threads may share one."""

    def __init__(self, ttl_seconds: float = 60, max_entries: int = MAX_ENTRIES) -> None:
        self.ttl_seconds = ttl_seconds
        self.last_on_unavailable: OnUnavailableAction | None = None
        self._ttl_ms = int(ttl_seconds * 1000)
        self._lock = threading.Lock()
        self._slots: _Bounded[ConfigSlot, LimiterConfig | None] = _Bounded(max_entries)
        self._entities: _Bounded[str, Entity | None] = _Bounded(max_entries)
        self._resolutions: _Bounded[tuple[str, str], Resolution] = _Bounded(max_entries)
        self._hits = 0
        self._misses = 0

    def resolution(self, entity_id: str, resource: str, now_ms: int) -> Resolution | None:
        """What was decided, while every record it came from is still fresh."""
        # Reads take no lock: the worst that a race can do is to miss.
        entry = self._resolutions.get((entity_id, resource), now_ms)
        if entry is None:
            return None
        self._hits += 1
        return entry[1]

    def keep_resolution(
        self, entity_id: str, resource: str, resolution: Resolution, expires_at_ms: int
    ) -> None:
        """Remember a decision until the first of its records expires."""
        with self._lock:
            self._resolutions.put((entity_id, resource), resolution, expires_at_ms)

    def fresh_slots(
        self, slots: Iterable[ConfigSlot], now_ms: int
    ) -> dict[ConfigSlot, tuple[int, LimiterConfig | None]]:
        """The records that need not be read again, with the time until which that holds."""
        with self._lock:
            wanted = [slot for slot in slots if slot != SYSTEM_SLOT]
            found = {slot: e for slot in wanted if (e := self._slots.get(slot, now_ms))}
            self._hits += len(found)
            self._misses += len(wanted) - len(found)
            return found

    def fresh_entity(self, entity_id: str, now_ms: int) -> tuple[int, Entity | None] | None:
        """The entity record, if it need not be read again."""
        with self._lock:
            return self._entities.get(entity_id, now_ms)

    def keep_slot(self, slot: ConfigSlot, config: LimiterConfig | None, now_ms: int) -> int:
        """Remember a record, or its absence, and return until when."""
        with self._lock:
            self._slots.put(slot, config, now_ms + self._ttl_ms)
            if slot == SYSTEM_SLOT:
                self.last_on_unavailable = config.on_unavailable if config else None
        return now_ms + self._ttl_ms

    def keep_entity(self, entity_id: str, entity: Entity | None, now_ms: int) -> int:
        """Remember an entity, or its absence, and return until when."""
        with self._lock:
            self._entities.put(entity_id, entity, now_ms + self._ttl_ms)
        return now_ms + self._ttl_ms

    def system(self, now_ms: int) -> tuple[int, LimiterConfig | None] | None:
        """The system record, if it was seen within the lifetime of the others."""
        with self._lock:
            return self._slots.get(SYSTEM_SLOT, now_ms)

    def invalidate(self, entity_id: str | None = None, resource: str | None = None) -> None:
        """Forget what concerns this entity, this resource, or both; everything by default."""
        # An entity's `_default_` limits decide for all of its resources.
        every_resource = resource in (None, DEFAULT_RESOURCE)

        def doomed(key: tuple[str | None, str | None]) -> bool:
            return entity_id in (None, key[0]) and (every_resource or key[1] == resource)

        with self._lock:
            self._slots.discard_where(doomed)
            self._resolutions.discard_where(doomed)
            if entity_id is None and every_resource:
                self._entities.clear()
                self.last_on_unavailable = None
            elif entity_id is not None:
                self._entities.discard_where(lambda key: key == entity_id)

    def stats(self) -> CacheStats:
        """Hits and misses so far, and how many records are remembered."""
        with self._lock:
            return CacheStats(self._hits, self._misses, len(self._slots), self.ttl_seconds)
