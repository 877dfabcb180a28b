"""What a process remembers of stored configuration, for a bounded time and in bounded space.

Two layers. Records: those that many entities share, present or known to be absent.
Resolutions: what was decided for an entity and resource, which is all that is remembered of
an entity's own records: a process may see a great many entities, most of which have none.
The system record has no lifetime of its own: every read of other records brings it along.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ..core.hierarchy import SYSTEM_SLOT, ConfigSlot
from ..core.limit import LimitSet
from ..core.models import (
    CacheStats,
    ConfigSource,
    LimiterConfig,
    OnUnavailableAction,
)
from ..core.naming import DEFAULT_RESOURCE
from .bounded import Bounded
from .bounded_pairs import BoundedPairs
from .forks import new_lock

V = TypeVar("V")
MAX_ENTRIES = 100_000


@dataclass(frozen=True, slots=True)
class Resolution:
    """What is in force for an entity and resource."""

    limits: LimitSet | None
    source: ConfigSource | None
    on_unavailable: OnUnavailableAction | None
    parent_id: str | None
    cascade: bool


Kept = tuple[int, V]
"""A value, and the time until which it counts, first."""


class ConfigCache:
    """Configuration as this process last saw it. Any number of threads may share one.

    `generation` counts what was forgotten: a read that began before must not be kept after.
    """

    def __init__(self, ttl_seconds: float = 60, max_entries: int = MAX_ENTRIES) -> None:
        self.ttl_seconds = ttl_seconds
        self.last_on_unavailable: OnUnavailableAction | None = None
        self.ttl_ms = int(ttl_seconds * 1000)
        self.generation = 0
        self._lock = new_lock()
        self._slots: Bounded[ConfigSlot, Kept[LimiterConfig | None]] = Bounded(max_entries)
        self._resolutions: BoundedPairs[Kept[Resolution]] = BoundedPairs(max_entries)
        self._hits = 0
        self._misses = 0

    def resolution(self, entity_id: str, resource: str, now_ms: int) -> Resolution | None:
        """What was decided, while every record it came from is still fresh."""
        kept = self._fresh(self._resolutions.get(entity_id, resource), now_ms)
        if kept is None:
            return None
        self._hits += 1
        return kept[1]

    def _fresh(self, kept: Kept[V] | None, now_ms: int) -> Kept[V] | None:
        # What was kept at a time still to come is as old as anybody's guess: the clock was put
        # back, and would make it last that much longer.
        is_fresh = kept is not None and kept[0] - self.ttl_ms <= now_ms < kept[0]
        return kept if is_fresh else None

    def keep(
        self,
        generation: int,
        slots: Mapping[ConfigSlot, Kept[LimiterConfig | None]],
        pair: tuple[str, str] | None = None,
        resolution: Kept[Resolution] | None = None,
    ) -> None:
        """Remember records, absent ones too, and what was decided for an entity and resource,
        unless something was forgotten since they were asked for."""
        with self._lock:
            if generation != self.generation:
                return
            for slot, config in slots.items():
                self._slots.put(slot, config)
            if pair is not None and resolution is not None:
                self._resolutions.put(*pair, resolution)
            if SYSTEM_SLOT in slots:
                system = slots[SYSTEM_SLOT][1]
                self.last_on_unavailable = None if system is None else system.on_unavailable

    def fresh_slots(
        self, slots: Iterable[ConfigSlot], now_ms: int
    ) -> dict[ConfigSlot, Kept[LimiterConfig | None]]:
        """The records that need not be read again, with the time until which that holds."""
        wanted = [slot for slot in slots if slot != SYSTEM_SLOT]
        found = {slot: k for slot in wanted if (k := self._fresh(self._slots.get(slot), now_ms))}
        self._hits += len(found)
        self._misses += len(wanted) - len(found)
        return found

    def system(self, now_ms: int) -> Kept[LimiterConfig | None] | None:
        """The system record, if it was seen within the lifetime of the others."""
        return self._fresh(self._slots.get(SYSTEM_SLOT), now_ms)

    def invalidate(self, entity_id: str | None = None, resource: str | None = None) -> None:
        """Forget what concerns this entity, this resource, or both; everything by default."""
        # An entity's `_default_` limits decide for all of its resources.
        name = None if resource == DEFAULT_RESOURCE else resource
        with self._lock:
            self.generation += 1
            if entity_id is not None:
                self._resolutions.discard(entity_id, name)
            elif name is not None:
                self._slots.discard(ConfigSlot(resource=name))
                self._resolutions.discard_everywhere(name)
            else:
                self._slots.clear()
                self._resolutions.clear()
                self.last_on_unavailable = None

    def stats(self) -> CacheStats:
        """Hits and misses so far, and how many records and resolutions are remembered."""
        size = len(self._slots) + len(self._resolutions)
        return CacheStats(self._hits, self._misses, size, self.ttl_seconds)
