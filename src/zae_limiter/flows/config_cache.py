"""What a process remembers of stored configuration, for a bounded time and in bounded space.

Two layers. Records: one for each slot and entity, present or known to be absent.
Resolutions: what was decided from them for an entity and resource. The system record has
no lifetime of its own: every read of other records brings it along.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

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
from .bounded import Bounded
from .forks import new_lock

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


Kept = tuple[int, V]
"""A value, and the time until which it counts, first."""


def _fresh(kept: Kept[V] | None, now_ms: int) -> Kept[V] | None:
    return kept if kept is not None and now_ms < kept[0] else None


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
        self._entities: Bounded[str, Kept[Entity | None]] = Bounded(max_entries)
        self._resolutions: Bounded[tuple[str, str], Kept[Resolution]] = Bounded(max_entries)
        self._hits = 0
        self._misses = 0

    def resolution(self, entity_id: str, resource: str, now_ms: int) -> Resolution | None:
        """What was decided, while every record it came from is still fresh."""
        kept = self._resolutions.get((entity_id, resource))
        if kept is None or now_ms >= kept[0]:
            return None
        self._hits += 1
        return kept[1]

    def keep(
        self,
        generation: int,
        slots: Mapping[ConfigSlot, Kept[LimiterConfig | None]],
        entities: Mapping[str, Kept[Entity | None]] = MappingProxyType({}),
        resolutions: Mapping[tuple[str, str], Kept[Resolution]] = MappingProxyType({}),
    ) -> None:
        """Remember records, absent ones too, and what was decided from them, unless
        something was forgotten since they were asked for."""
        with self._lock:
            if generation != self.generation:
                return
            for slot, config in slots.items():
                self._slots.put(slot, config)
            for entity_id, entity in entities.items():
                self._entities.put(entity_id, entity)
            for pair, resolution in resolutions.items():
                self._resolutions.put(pair, resolution)
            if SYSTEM_SLOT in slots:
                system = slots[SYSTEM_SLOT][1]
                self.last_on_unavailable = None if system is None else system.on_unavailable

    def fresh_slots(
        self, slots: Iterable[ConfigSlot], now_ms: int
    ) -> dict[ConfigSlot, Kept[LimiterConfig | None]]:
        """The records that need not be read again, with the time until which that holds."""
        wanted = [slot for slot in slots if slot != SYSTEM_SLOT]
        found = {slot: kept for slot in wanted if (kept := _fresh(self._slots.get(slot), now_ms))}
        self._hits += len(found)
        self._misses += len(wanted) - len(found)
        return found

    def fresh_entity(self, entity_id: str, now_ms: int) -> Kept[Entity | None] | None:
        """The entity record, if it need not be read again."""
        return _fresh(self._entities.get(entity_id), now_ms)

    def system(self, now_ms: int) -> Kept[LimiterConfig | None] | None:
        """The system record, if it was seen within the lifetime of the others."""
        return _fresh(self._slots.get(SYSTEM_SLOT), now_ms)

    def invalidate(self, entity_id: str | None = None, resource: str | None = None) -> None:
        """Forget what concerns this entity, this resource, or both; everything by default."""
        # An entity's `_default_` limits decide for all of its resources.
        every_resource = resource in (None, DEFAULT_RESOURCE)

        def doomed(key: tuple[str | None, str | None]) -> bool:
            return entity_id in (None, key[0]) and (every_resource or key[1] == resource)

        with self._lock:
            self.generation += 1
            self._slots.discard_where(doomed)
            self._resolutions.discard_where(doomed)
            if entity_id is not None:
                self._entities.discard_where(lambda key: key == entity_id)
            elif every_resource:
                self._entities.clear()
                self.last_on_unavailable = None

    def stats(self) -> CacheStats:
        """Hits and misses so far, and how many records are remembered."""
        return CacheStats(self._hits, self._misses, len(self._slots), self.ttl_seconds)
