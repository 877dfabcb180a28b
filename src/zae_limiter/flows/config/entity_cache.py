"""The resolutions of each entity, in little space.

A process may see a million entities, nearly all without records of their own. Such an entity takes
a place in a dict and a place in a ring, and nothing else: its entry is one object for all
entities that were resolved to the same within a 64th of the TTL.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ...local.bounded import Bounded
from .resolution import Resolution

# An entity with limits of its own takes about ten times the space of an entity without.
OWN_WEIGHT = 10
# Entries whose times differ by at most this part of the TTL become one.
_STEPS_PER_TTL = 64
_MAX_SHARED = 4096


@dataclass(slots=True, eq=False)
class ResolvedEntry:
    """A resolution with its times.

    `since_ms`: when the entity's own records were read. `until_ms`: until when all records that
    it rests on are fresh.
    """

    resource: str
    since_ms: int
    until_ms: int
    resolution: Resolution

    @property
    def weight(self) -> int:
        """How many places of the cache the entry counts for."""
        return OWN_WEIGHT if self.resolution.has_own_limits else 1


# An entity whose entries were discarded holds this until the sweep comes to it. Without this, its
# id would enter the ring once more each time that the entity comes back.
_EMPTY: dict[str, ResolvedEntry] = {}


class EntityCache:
    """Entries by entity and resource. If there are too many, the oldest entities go first.

    Most entities use one resource and hold its entry; an entity with more holds a dict. Each `put`
    sweeps the next entity of the ring, and another if that one leaves, so that stale entries leave
    in time and no `put` takes long.

    Any number of threads may read; a thread that changes the cache holds a lock.
    """

    def __init__(self, max_entries: int, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms
        self._max_entries = max_entries
        self._room = max_entries
        self._size = 0
        self._held: dict[str, ResolvedEntry | dict[str, ResolvedEntry]] = {}
        self._ring: deque[str] = deque()
        self._latest: Bounded[tuple[str, Resolution], ResolvedEntry] = Bounded(_MAX_SHARED)

    def __len__(self) -> int:
        return self._size

    def get(self, entity_id: str, resource: str) -> ResolvedEntry | None:
        """Find an entry, which may be stale."""
        held = self._held.get(entity_id)
        if isinstance(held, dict):
            return held.get(resource)
        return held if held is not None and held.resource == resource else None

    def put(self, entity_id: str, entry: ResolvedEntry, now_ms: int) -> None:
        """Add or replace an entry, and sweep."""
        resource, held = entry.resource, self._held.get(entity_id)
        entry, replaced = self._shared(entry), self.get(entity_id, resource)
        if held is None:
            self._ring.append(entity_id)
        if replaced is not None:
            self._count(replaced, -1)
        self._count(entry, 1)
        if not held or held is replaced:
            self._held[entity_id] = entry
        elif isinstance(held, dict):
            # Taken out first: the dict is in order of age, for the sweep.
            held.pop(resource, None)
            held[resource] = entry
        else:
            self._held[entity_id] = {held.resource: held, resource: entry}
        self._tidy(now_ms)

    def discard(self, entity_id: str, resource: str | None = None) -> None:
        """Drop an entity's entry for a resource, or all of its entries."""
        held = self._held.get(entity_id)
        if isinstance(held, dict):
            for name in [*held] if resource is None else [resource]:
                if name in held:
                    self._count(held.pop(name), -1)
        elif held is not None and resource in (None, held.resource):
            self._count(held, -1)
            self._held[entity_id] = _EMPTY

    def discard_resource(self, resource: str) -> None:
        """Drop the entries of all entities for a resource."""
        for entity_id in self._ring:
            self.discard(entity_id, resource)

    def clear(self) -> None:
        """Drop every entry."""
        self._held.clear()
        self._ring.clear()
        self._latest.clear()
        self._room, self._size = self._max_entries, 0

    def _shared(self, entry: ResolvedEntry) -> ResolvedEntry:
        """Find an entry that says the same and ends a little earlier, or keep this one."""
        key, step_ms = (entry.resource, entry.resolution), self._ttl_ms // _STEPS_PER_TTL
        latest = self._latest.get(key)
        if (
            latest is not None
            and 0 <= entry.since_ms - latest.since_ms <= step_ms
            and 0 <= entry.until_ms - latest.until_ms <= step_ms
        ):
            return latest
        self._latest.put(key, entry)
        return entry

    def _count(self, entry: ResolvedEntry, change: int) -> None:
        self._size += change
        self._room -= change * entry.weight

    def _tidy(self, now_ms: int) -> None:
        ring = self._ring
        if self._room >= 0 and len(ring) <= self._max_entries:
            if self._sweep(now_ms):
                self._sweep(now_ms)
            return
        while ring and (self._room < 0 or len(ring) > self._max_entries):
            self.discard(ring[0])
            del self._held[ring.popleft()]

    def _sweep(self, now_ms: int) -> bool:
        """Drop the oldest entry of the next entity if it is stale. True if the entity left."""
        if not self._ring:
            return False
        entity_id = self._ring[0]
        held = self._held[entity_id]
        oldest = next(iter(held.values()), None) if isinstance(held, dict) else held
        if oldest is not None and not oldest.since_ms <= now_ms < oldest.since_ms + self._ttl_ms:
            self.discard(entity_id, oldest.resource)
        if self._held[entity_id]:
            self._ring.rotate(-1)
            return False
        del self._held[self._ring.popleft()]
        return True
