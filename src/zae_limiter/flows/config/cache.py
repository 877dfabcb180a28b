"""What a process remembers of stored configuration, for a bounded time and in bounded space.

Two layers. Records: those that many entities share, present or known to be absent. Verdicts:
what was decided for an entity and resource, which is all that is remembered of an entity's own
records: a process may see a great many entities, most of which have none. Where a store can tell
which entities have any, nothing needs to be remembered of the others.

Every record counts for the same time from when it was read, and a verdict no longer than any
record that it rests on. So a change at any level arrives within that time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...core.hierarchy import SYSTEM_SLOT, ConfigSlot, shared_slots
from ...core.models import CacheStats, OnUnavailableAction
from ...core.validation import DEFAULT_RESOURCE
from ...local.bounded import Bounded
from ...local.fork_safety import new_lock
from .entity_cache import Verdict, Verdicts
from .resolution import Defaults, Named, Record, Resolution

MAX_ENTRIES = 1_000_000
_MAX_RECORDS = 10_000
_MAX_RECENT = 4096
# Verdicts that end within this part of their lifetime are one: the least of them.
_STEPS = 64


class ConfigCache:
    """Configuration as this process last saw it. Any number of threads may share one.

    `generation` counts what was forgotten: a read that began before must not be kept after.
    """

    def __init__(self, ttl_seconds: float = 60, max_entries: int = MAX_ENTRIES) -> None:
        self.ttl_seconds = ttl_seconds
        self.last_on_unavailable: OnUnavailableAction | None = None
        self.ttl_ms = int(ttl_seconds * 1000)
        self.generation = 0
        self.hits = 0
        self.misses = 0
        self._lock = new_lock()
        self._records: Bounded[ConfigSlot, Record] = Bounded(min(max_entries, _MAX_RECORDS))
        self._defaults: Bounded[str, Defaults] = Bounded(_MAX_RECORDS)
        self._verdicts = Verdicts(max_entries, self.ttl_ms)
        self._recent: Bounded[tuple[str, Resolution], Verdict] = Bounded(_MAX_RECENT)
        self._named: Named | None = None
        self.verdict = self._verdicts.get

    def is_fresh(self, since_ms: int, now_ms: int) -> bool:
        """Whether what was seen then still counts."""
        # What was seen at a time still to come is as old as anybody's guess: the clock was put
        # back, and would make it last that much longer.
        return since_ms <= now_ms < since_ms + self.ttl_ms

    def shared(self, resource: str, now_ms: int) -> Defaults | dict[ConfigSlot, Record]:
        """What holds for entities that have nothing of their own or, where not all of it is
        fresh, the records that are."""
        known = self._defaults.get(resource)
        if known is not None and self.is_fresh(known.since_ms, now_ms):
            return known
        return self.records(shared_slots(resource), now_ms)

    def records(self, slots: Iterable[ConfigSlot], now_ms: int) -> dict[ConfigSlot, Record]:
        """Those of the records that are fresh."""
        known = {slot: record for slot in slots if (record := self._records.get(slot))}
        return {slot: r for slot, r in known.items() if self.is_fresh(r.since_ms, now_ms)}

    def keep_records(self, generation: int, records: Mapping[ConfigSlot, Record]) -> None:
        """Remember records, absent ones too, unless something was forgotten since they were
        asked for."""
        with self._lock:
            if generation != self.generation:
                return
            for slot, record in records.items():
                self._records.put(slot, record)
            if SYSTEM_SLOT in records:
                system = records[SYSTEM_SLOT].config
                self.last_on_unavailable = None if system is None else system.on_unavailable

    def named(self, now_ms: int) -> Named | None:
        """Which entities have records of their own, if that is fresh."""
        known = self._named
        return known if known is not None and self.is_fresh(known.since_ms, now_ms) else None

    def keep_named(self, generation: int, named: Named) -> None:
        """Remember which they are, unless something was forgotten since."""
        with self._lock:
            if generation == self.generation:
                self._named = named

    def keep_defaults(self, generation: int, resource: str, defaults: Defaults) -> None:
        """Remember what records came to, unless something was forgotten since."""
        with self._lock:
            if generation == self.generation:
                self._defaults.put(resource, defaults)

    def keep(self, generation: int, entity_id: str, verdict: Verdict, now_ms: int) -> None:
        """Remember what was decided for an entity, unless something was forgotten since."""
        with self._lock:
            if generation == self.generation:
                self._verdicts.put(entity_id, self._shared(verdict), now_ms)

    def _shared(self, verdict: Verdict) -> Verdict:
        """One that says the same and ends hardly earlier, if there is one."""
        key, step_ms = (verdict.resource, verdict.resolution), self.ttl_ms // _STEPS
        recent = self._recent.get(key)
        if (
            recent is not None
            and 0 <= verdict.since_ms - recent.since_ms <= step_ms
            and 0 <= verdict.until_ms - recent.until_ms <= step_ms
        ):
            return recent
        self._recent.put(key, verdict)
        return verdict

    def invalidate(self, entity_id: str | None = None, resource: str | None = None) -> None:
        """Forget what concerns this entity, this resource, or both; everything by default."""
        # An entity's `_default_` limits decide for all of its resources.
        name = None if resource == DEFAULT_RESOURCE else resource
        with self._lock:
            self.generation += 1
            self._named = None
            if entity_id is not None:
                self._verdicts.discard(entity_id, name)
            elif name is not None:
                self._records.discard(ConfigSlot(resource=name))
                self._defaults.discard(name)
                self._verdicts.discard_everywhere(name)
            else:
                self._records.clear()
                self._defaults.clear()
                self._verdicts.clear()
                self._recent.clear()
                self.last_on_unavailable = None

    def stats(self) -> CacheStats:
        """How often nothing had to be read, how many records had to be, and how much is
        remembered."""
        size = len(self._records) + len(self._verdicts)
        return CacheStats(self.hits, self.misses, size, self.ttl_seconds)
