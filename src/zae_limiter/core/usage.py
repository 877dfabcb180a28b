"""Usage: the consumption of writes, and hours added up to windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .bucket import Bucket
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
    seen = {} if before is None else before.cells
    consumed_milli = {}
    for name, cell in after.cells.items():
        old = seen.get(name)
        change_milli = cell.consumed_milli - (0 if old is None else old.consumed_milli)
        if change_milli and name != WCU:
            consumed_milli[name] = change_milli
    return UsageCounts(consumed_milli, after.acquires - (0 if before is None else before.acquires))


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
    return sorted(found, key=_newest_first)


def _newest_first(snapshot: UsageSnapshot) -> tuple[str, int, str, str]:
    newest = snapshot.window_start.translate(_DESCENDING)
    kind = WINDOW_TYPES.index(snapshot.window_type)
    return newest, kind, snapshot.entity_id, snapshot.resource


_DESCENDING = str.maketrans("0123456789", "9876543210")


def _windows(hours: Iterable[UsageHour], window: WindowType) -> Iterator[UsageSnapshot]:
    totals: dict[tuple[str, str, str], UsageCounts] = {}
    ends: dict[str, str] = {}
    for hour in hours:
        start = window_start(window, hour.start_ms)
        ends[iso(start)] = iso(window_end(window, start))
        totals.setdefault((iso(start), hour.entity_id, hour.resource), UsageCounts()).add(
            hour.counts
        )
    for (start_iso, entity_id, resource), counts in totals.items():
        counters = {name: n // MILLI for name, n in counts.consumed_milli.items() if n}
        yield UsageSnapshot(
            entity_id, resource, start_iso, ends[start_iso], window, counters, counts.events
        )


def summarize(found: Iterable[UsageSnapshot]) -> UsageSummary:
    """Return totals, and averages over the snapshots that have the limit."""
    total: dict[str, int] = {}
    seen: dict[str, int] = {}
    starts: list[str] = []
    for snapshot in found:
        starts.append(snapshot.window_start)
        for name, amount in snapshot.counters.items():
            total[name] = total.get(name, 0) + amount
            seen[name] = seen.get(name, 0) + 1
    average = {name: total[name] / seen[name] for name in total}
    return UsageSummary(
        len(starts), total, average, min(starts, default=None), max(starts, default=None)
    )
