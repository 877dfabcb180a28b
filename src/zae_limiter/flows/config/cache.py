"""Stored configuration that a process has read, for one TTL and in bounded space.

Three layers, with negative caching in each:
1. Shared records: those of the system and of resources.
2. Entity entries: the resolution for an entity and a resource, in place of its own records.
3. Record owners: the entities that have records of their own, where the store can list them. All
   other entities need neither a read nor an entry.

A value is fresh for one TTL from when it was read, and an entry no longer than any record that it
rests on. So a change at any level arrives within the TTL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...core.hierarchy import SYSTEM_SLOT, ConfigSlot, Slots
from ...core.models import CacheStats, OnUnavailableAction
from ...core.validation import DEFAULT_RESOURCE
from ...local.bounded import Bounded
from ...local.fork_safety import new_lock
from .entity_cache import EntityCache, ResolvedEntry
from .resolution import SharedRecord

MAX_ENTRIES = 1_000_000
_MAX_RECORDS = 10_000
# Where configuration is not cached, the registration is confirmed once in a second.
_SHORTEST_CONFIRMATION_MS = 1000


class RecordOwners(NamedTuple):
    """The entities that have records of their own; None if the store cannot list them."""

    since_ms: int
    entity_ids: frozenset[str] | None

    def exclude(self, entity_id: str) -> bool:
        """Whether an entity is known to have no records."""
        return self.entity_ids is not None and entity_id not in self.entity_ids


class ConfigCache:
    """Configuration as this process last read it. Any number of threads may share one.

    `epoch` counts invalidations: a read that began before one must not be kept after it.
    `registered_at_ms` is when the namespace was last found to be registered.
    """

    def __init__(
        self,
        ttl_seconds: float = 60,
        max_entries: int = MAX_ENTRIES,
        *,
        registered_at_ms: int = 0,
    ) -> None:
        self.ttl_seconds = ttl_seconds
        self.last_on_unavailable: OnUnavailableAction | None = None
        self.ttl_ms = int(ttl_seconds * 1000)
        self.epoch = 0
        self.registered_at_ms = registered_at_ms
        self.hits = 0
        self.misses = 0
        self._lock = new_lock()
        self._records: Bounded[ConfigSlot, SharedRecord] = Bounded(min(max_entries, _MAX_RECORDS))
        self._entities = EntityCache(max_entries, self.ttl_ms)
        self._owners: RecordOwners | None = None
        self.entry = self._entities.get

    def is_fresh(self, since_ms: int, now_ms: int) -> bool:
        """Whether a value that was read at `since_ms` is not stale yet."""
        # A timestamp in the future is stale: the clock stepped back.
        return since_ms <= now_ms < since_ms + self.ttl_ms

    def is_registered(self, now_ms: int) -> bool:
        """Whether the namespace was found to be registered within the last TTL."""
        return self.registered_at_ms <= now_ms < self.registered_until_ms

    @property
    def registered_until_ms(self) -> int:
        """The time until which the registration need not be confirmed again."""
        return self.registered_at_ms + max(self.ttl_ms, _SHORTEST_CONFIRMATION_MS)

    def records(self, slots: Slots, now_ms: int) -> dict[ConfigSlot, SharedRecord]:
        """Find the fresh records of shared slots."""
        found = {}
        for slot in slots:
            record = self._records.get(slot)
            if record is not None and self.is_fresh(record.since_ms, now_ms):
                found[slot] = record
        return found

    def keep_records(self, epoch: int, records: Mapping[ConfigSlot, SharedRecord]) -> None:
        """Keep shared records, unless the cache was invalidated since `epoch`."""
        with self._lock:
            if epoch != self.epoch:
                return
            for slot, record in records.items():
                self._records.put(slot, record)
            if SYSTEM_SLOT in records:
                system = records[SYSTEM_SLOT].config
                self.last_on_unavailable = None if system is None else system.on_unavailable

    def owners(self, now_ms: int) -> RecordOwners | None:
        """Find the entities that have records of their own, if the list is fresh."""
        owners = self._owners
        return owners if owners is not None and self.is_fresh(owners.since_ms, now_ms) else None

    def keep_owners(self, epoch: int, owners: RecordOwners) -> None:
        """Keep the list of owners, unless the cache was invalidated since `epoch`."""
        with self._lock:
            if epoch == self.epoch:
                self._owners = owners

    def keep_entry(self, epoch: int, entity_id: str, entry: ResolvedEntry, now_ms: int) -> None:
        """Keep an entity's entry, unless the cache was invalidated since `epoch`."""
        with self._lock:
            if epoch == self.epoch:
                self._entities.put(entity_id, entry, now_ms)

    def invalidate(self, entity_id: str | None = None, resource: str | None = None) -> None:
        """Forget what concerns this entity, this resource, or both; everything by default."""
        # An entity's `_default_` limits decide for all of its resources.
        name = None if resource == DEFAULT_RESOURCE else resource
        with self._lock:
            self.epoch += 1
            self._owners = None
            if entity_id is not None:
                self._entities.discard(entity_id, name)
            elif name is not None:
                self._records.discard(ConfigSlot(resource=name))
                self._entities.discard_resource(name)
            else:
                self._records.clear()
                self._entities.clear()
                self.last_on_unavailable = None

    def stats(self) -> CacheStats:
        """Count the hits, the records that had to be read, and the entries."""
        size = len(self._records) + len(self._entities)
        return CacheStats(self.hits, self.misses, size, self.ttl_seconds)
