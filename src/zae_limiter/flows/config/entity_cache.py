"""What was decided for each entity and resource, in little space."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from .resolution import Resolution

# What comes with limits of its own takes about so many times the space of what does not.
OWN_WEIGHT = 10


@dataclass(slots=True, eq=False)
class Verdict:
    """A decision about a resource. Entities for which it is the same, and that came at about
    the same time, share one.

    `since_ms`: when the entity's own records were read. `until_ms`: until when all records
    that it rests on are fresh.
    """

    resource: str
    since_ms: int
    until_ms: int
    resolution: Resolution

    @property
    def weight(self) -> int:
        """How much of the space it counts for."""
        return OWN_WEIGHT if self.resolution.has_own_limits else 1


# What is held of an entity of which nothing is left, until the ring comes to it.
_FORGOTTEN: dict[str, Verdict] = {}


class Verdicts:
    """Verdicts by entity and resource. When there are too many, the oldest entities go first.

    Most entities come for one resource. Such a one takes a place in a dict and a place in a
    ring, and nothing else of its own. With every verdict that is put, the next entity of the ring
    is looked at, and another one if that leaves, so that those leave in time of which nothing
    is fresh.

    Any number of threads may read; whoever changes it holds a lock.
    """

    def __init__(self, max_entries: int, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms
        self._max_entries = max_entries
        self._room = max_entries
        self._size = 0
        self._held: dict[str, Verdict | dict[str, Verdict]] = {}
        self._ring: deque[str] = deque()

    def __len__(self) -> int:
        return self._size

    def get(self, entity_id: str, resource: str) -> Verdict | None:
        """The verdict, if it is remembered; it may be out of date."""
        held = self._held.get(entity_id)
        if isinstance(held, dict):
            return held.get(resource)
        return held if held is not None and held.resource == resource else None

    def put(self, entity_id: str, verdict: Verdict, now_ms: int) -> None:
        """Remember a verdict, and forget some that are out of date."""
        resource, held = verdict.resource, self._held.get(entity_id)
        replaced = self.get(entity_id, resource)
        if held is None:
            self._ring.append(entity_id)
        if replaced is not None:
            self._count(replaced, -1)
        self._count(verdict, 1)
        if not held or held is replaced:
            self._held[entity_id] = verdict
        elif isinstance(held, dict):
            # The oldest come first.
            held.pop(resource, None)
            held[resource] = verdict
        else:
            self._held[entity_id] = {held.resource: held, resource: verdict}
        self._tidy(now_ms)

    def discard(self, entity_id: str, resource: str | None = None) -> None:
        """Forget one verdict of an entity, or all of them."""
        held = self._held.get(entity_id)
        if isinstance(held, dict):
            for name in [*held] if resource is None else [resource]:
                if name in held:
                    self._count(held.pop(name), -1)
        elif held is not None and resource in (None, held.resource):
            self._count(held, -1)
            self._held[entity_id] = _FORGOTTEN

    def discard_everywhere(self, resource: str) -> None:
        """Forget the verdicts about this resource."""
        for entity_id in self._ring:
            self.discard(entity_id, resource)

    def clear(self) -> None:
        """Forget everything."""
        self._held.clear()
        self._ring.clear()
        self._room, self._size = self._max_entries, 0

    def _count(self, verdict: Verdict, change: int) -> None:
        self._size += change
        self._room -= change * verdict.weight

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
        """Look at the next entity of the ring, at its oldest verdict if it has several, and say
        whether it left."""
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
