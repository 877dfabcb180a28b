"""Usage: what a write consumed, how hours add up to windows, and what a snapshot has counted.

A store either counts usage in the writes themselves, by hours (`UsageHour`), or leaves it to the
reader of its stream of changes, which adds to snapshots (`UsageAddition`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from .bucket import Bucket, is_another
from .limit import MILLI
from .models import UsageSnapshot, UsageSummary
from .validation import WCU
from .windows import WINDOW_TYPES, WindowType, iso, window_end, window_start


@dataclass(slots=True)
class UsageCounts:
    """Millitokens by limit, and admitted acquires."""

    consumed_milli: dict[str, int] = field(default_factory=dict)
    events: int = 0

    def add(self, other: UsageCounts) -> None:
        """Add other counts to these."""
        mine = self.consumed_milli
        for name, amount_milli in other.consumed_milli.items():
            mine[name] = mine.get(name, 0) + amount_milli
        self.events += other.events

    def __bool__(self) -> bool:
        return bool(self.events or any(self.consumed_milli.values()))


def consumption(before: Bucket | None, after: Bucket) -> UsageCounts:
    """Return the consumption of the write between two images; negative where it gave back."""
    if before is not None and is_another(before, after):
        before = None
    seen = {} if before is None else before.cells
    consumed_milli = {}
    for name, cell in after.cells.items():
        old = seen.get(name)
        change_milli = cell.consumed_milli - (0 if old is None else old.consumed_milli)
        if change_milli and name != WCU:
            consumed_milli[name] = change_milli
    return UsageCounts(consumed_milli, after.acquires - (0 if before is None else before.acquires))


@dataclass(frozen=True, slots=True)
class UsagePart:
    """A usage part is what one write consumed, and the write's place in the order of all writes to
    its bucket item."""

    sequence: str
    counts: UsageCounts


@dataclass(frozen=True, slots=True)
class UsageAddition:
    """A usage addition is what a batch of changes adds to one snapshot.

    `parts` are those of each shard of the bucket, in the order of their sequences.

    A snapshot remembers the last sequence that it has counted of each shard, and counts only
    parts that come later. So a part that is delivered again is not counted again, if each writer
    adds parts of a shard in their order and leaves none out. Parts that come to nothing together
    are added, too: otherwise one of them that is delivered again, alone, would be counted.
    """

    namespace_id: str
    entity_id: str
    resource: str
    window: WindowType
    start: datetime
    expires_at_s: int
    parts: Mapping[int, tuple[UsagePart, ...]]

    def beyond(self, counted: Mapping[int, str]) -> UsageAddition:
        """Leave out the parts that a snapshot has counted which counted up to these sequences."""
        rest = {
            shard: tuple(p for p in parts if p.sequence > counted.get(shard, ""))
            for shard, parts in self.parts.items()
        }
        return replace(self, parts={shard: parts for shard, parts in rest.items() if parts})

    def total(self) -> UsageCounts:
        """Add up all parts."""
        counts = UsageCounts()
        for parts in self.parts.values():
            for part in parts:
                counts.add(part.counts)
        return counts

    def first_sequences(self) -> dict[int, str]:
        """Return the first sequence of each shard."""
        return {shard: parts[0].sequence for shard, parts in self.parts.items()}

    def last_sequences(self) -> dict[int, str]:
        """Return the last sequence of each shard: those that a snapshot remembers."""
        return {shard: parts[-1].sequence for shard, parts in self.parts.items()}


@dataclass(frozen=True, slots=True)
class UsageHour:
    """The usage of one resource by one entity in one hour."""

    entity_id: str
    resource: str
    start_ms: int
    counts: UsageCounts


def snapshots(hours: Iterable[UsageHour], window: WindowType | None) -> list[UsageSnapshot]:
    """Return the windows that these hours fill, newest first; of all types when none is named."""
    wanted = WINDOW_TYPES if window is None else (window,)
    kept = list(hours)
    found = [snapshot for each in wanted for snapshot in _windows(kept, each)]
    return sorted(found, key=newest_first)


def newest_first(snapshot: UsageSnapshot) -> tuple[str, int, str, str]:
    """Return the place of a snapshot in a list: by time, and of those that start together the
    shorter window first."""
    newest = newest_first_text(snapshot.window_start)
    kind = WINDOW_TYPES.index(snapshot.window_type)
    return newest, kind, snapshot.entity_id, snapshot.resource


def newest_first_text(start: str) -> str:
    """Return a text that sorts the other way round than a time; of that text, the time."""
    return start.translate(_DESCENDING)


_DESCENDING = str.maketrans("0123456789", "9876543210")


def _windows(hours: Iterable[UsageHour], window: WindowType) -> Iterator[UsageSnapshot]:
    totals: dict[tuple[datetime, str, str], UsageCounts] = {}
    for hour in hours:
        key = (window_start(window, hour.start_ms), hour.entity_id, hour.resource)
        totals.setdefault(key, UsageCounts()).add(hour.counts)
    for (start, entity_id, resource), counts in totals.items():
        yield snapshot_of(entity_id, resource, window, start, counts)


def snapshot_of(
    entity_id: str, resource: str, window: WindowType, start: datetime, counts: UsageCounts
) -> UsageSnapshot:
    """Return what users see of these counts: whole tokens, and no limit that was not used."""
    counters = {name: n // MILLI for name, n in counts.consumed_milli.items() if n}
    ends = iso(window_end(window, start))
    return UsageSnapshot(entity_id, resource, iso(start), ends, window, counters, counts.events)


@dataclass(slots=True)
class UsageTotals:
    """The sum of snapshots, of which any number is added one after the other."""

    total: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    snapshot_count: int = 0
    first: str | None = None
    last: str | None = None

    def add(self, found: Iterable[UsageSnapshot]) -> None:
        """Add snapshots."""
        for snapshot in found:
            start = snapshot.window_start
            self.snapshot_count += 1
            self.first = start if self.first is None else min(self.first, start)
            self.last = start if self.last is None else max(self.last, start)
            for name, amount in snapshot.counters.items():
                self.total[name] = self.total.get(name, 0) + amount
                self.seen[name] = self.seen.get(name, 0) + 1

    def summary(self) -> UsageSummary:
        """Return totals, and averages over the snapshots that have the limit."""
        average = {name: self.total[name] / self.seen[name] for name in self.total}
        return UsageSummary(self.snapshot_count, self.total, average, self.first, self.last)


def summarize(found: Iterable[UsageSnapshot]) -> UsageSummary:
    """Return totals, and averages over the snapshots that have the limit."""
    totals = UsageTotals()
    totals.add(found)
    return totals.summary()
