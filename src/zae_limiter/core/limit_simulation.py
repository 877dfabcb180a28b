"""Limits tried on recorded usage: the refusals that they would have made, as bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from .hierarchy import ConfigSlot, decide, slots
from .limit import Limit
from .manifest_plan import ManifestPlan
from .models import LimiterConfig, UsageSnapshot
from .refusal_bounds import RefusalBounds, UseWindow, refusal_bounds
from .windows import parse_iso

_SECOND = timedelta(seconds=1)
ConfigsBySlot = Mapping[ConfigSlot, LimiterConfig]


@dataclass(frozen=True, slots=True)
class SimulatedLimit:
    """A limit of one entity for one resource, the usage that it was tried on, and its refusals."""

    entity_id: str
    resource: str
    limit: Limit
    windows: int
    used: int
    requests: int
    refused: RefusalBounds


def simulate_limits(
    configs: ConfigsBySlot, snapshots: Iterable[UsageSnapshot]
) -> list[SimulatedLimit]:
    """Return each limit that the usage met, those that refuse most first. The snapshots are of one
    window type, and each window is there once."""
    buckets: dict[tuple[str, str], list[UsageSnapshot]] = {}
    for snapshot in snapshots:
        buckets.setdefault((snapshot.entity_id, snapshot.resource), []).append(snapshot)
    found = [
        _simulated(entity_id, resource, limit, used)
        for (entity_id, resource), used in buckets.items()
        for limit in decide(slots(entity_id, resource), configs)[0] or ()
        if any(limit.name in snapshot.counters for snapshot in used)
    ]
    return sorted(found, key=_worst_first)


def _worst_first(found: SimulatedLimit) -> tuple[int, int, str, str, str]:
    least, most = found.refused
    return -least, -most, found.entity_id, found.resource, found.limit.name


def _simulated(
    entity_id: str, resource: str, limit: Limit, snapshots: Iterable[UsageSnapshot]
) -> SimulatedLimit:
    windows = [_window(each, limit.name) for each in snapshots if limit.name in each.counters]
    return SimulatedLimit(
        entity_id,
        resource,
        limit,
        len(windows),
        sum(window.tokens for window in windows),
        sum(window.requests for window in windows),
        refusal_bounds(limit, windows),
    )


def _window(snapshot: UsageSnapshot, limit_name: str) -> UseWindow:
    start = parse_iso(snapshot.window_start)
    end = parse_iso(snapshot.window_end) + _SECOND
    # What was given back counts for nothing, and a correction without an acquire for a request.
    return UseWindow(
        round(start.timestamp() * 1000),
        round(end.timestamp() * 1000),
        max(0, snapshot.counters[limit_name]),
        max(1, snapshot.total_events),
    )


def configs_after(stored: ConfigsBySlot, plan: ManifestPlan) -> dict[ConfigSlot, LimiterConfig]:
    """Return the records that decide on limits once a plan is applied."""
    after = dict(stored)
    for change in plan.configs:
        if change.declared is None:
            after.pop(change.slot, None)
        elif change.declared.limits is not None:
            after[change.slot] = change.declared
    return after
