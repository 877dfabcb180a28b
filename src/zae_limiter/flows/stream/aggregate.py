"""Counting the usage that a batch of changes tells of, each write once.

A batch may be delivered again, cut in two, or handled by two processes at once: a snapshot
remembers what it has counted of each bucket item. The order in which a stream delivers the
changes of one item is all that is relied on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from ...core.bucket import BucketAddress
from ...core.changes import BucketChange, activities
from ...core.exceptions import StorageUnavailable, StoredDataError
from ...core.usage import UsageAddition, UsagePart, consumption
from ...core.windows import WINDOW_TYPES, WindowType, hour_start_ms, next_window, window_start
from ...ports.io import Io
from ...ports.repository_protocol import StreamedUsage
from ..scope import Scope
from .refills import refill_items
from .splits import split_busy_buckets

logger = logging.getLogger("zae_limiter")

RETENTION_DAYS = 90
MAX_RETENTION_DAYS = 3650
# How many snapshots are written at a time.
WRITES_AT_ONCE = 16
# The age at which a change tells nothing any more of the load that its bucket item is under. A
# Lambda may gather a batch for five minutes.
_STALE_MS = 600_000


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The settings of a stream's reader.

    `windows`: the windows that snapshots are kept of. `retention_days`: how long after the end of
    its window a snapshot is kept. `refills` and `splits`: whether bucket items that need it are
    refilled and split.
    """

    windows: tuple[WindowType, ...] = WINDOW_TYPES
    retention_days: int = RETENTION_DAYS
    refills: bool = False
    splits: bool = True


@dataclass(frozen=True, slots=True)
class StreamResult:
    """The outcome of a batch. `failed` has the ids of the records that have to be delivered again;
    `skipped` counts snapshots that are damaged and were passed over."""

    processed: int = 0
    snapshots_updated: int = 0
    refills_written: int = 0
    splits: int = 0
    skipped: int = 0
    failed: frozenset[str] = frozenset()


async def aggregate(
    scope: Scope,
    usage: StreamedUsage,
    changes: Iterable[BucketChange],
    settings: StreamSettings | None = None,
) -> StreamResult:
    """Count the usage of a batch, and look after its bucket items.

    The changes may be of any namespace. Usage that could not be counted is reported by record id,
    and everything else is counted all the same. Refills and splits are worth no second attempt.
    """
    settings = settings or StreamSettings()
    batch = in_order(changes)
    additions = plan_usage(batch, settings.windows, settings.retention_days)
    outcomes = await _add_all(scope.io, usage, additions)
    recent = recent_changes(batch, scope.io.now_ms())
    active = activities(recent)
    return StreamResult(
        processed=len(batch),
        snapshots_updated=sum(outcome is True for outcome in outcomes),
        refills_written=await refill_items(scope, active) if settings.refills else 0,
        splits=await split_busy_buckets(scope, recent, active) if settings.splits else 0,
        skipped=sum(isinstance(outcome, StoredDataError) for outcome in outcomes),
        failed=_failed(batch, additions, outcomes),
    )


def in_order(changes: Iterable[BucketChange]) -> list[BucketChange]:
    """Return each change once, those of an item in the order of its writes."""
    distinct = {(change.address, change.sequence): change for change in changes}
    return [distinct[key] for key in sorted(distinct)]


def recent_changes(changes: Sequence[BucketChange], now_ms: int) -> list[BucketChange]:
    """Return the changes that tell of a bucket's load now. Without this, a reader that catches up
    with a day would split buckets again that were busy hours ago and have been merged since."""
    return [change for change in changes if change.at_ms > now_ms - _STALE_MS]


def plan_usage(
    changes: Iterable[BucketChange],
    windows: Sequence[WindowType] = WINDOW_TYPES,
    retention_days: int = RETENTION_DAYS,
) -> list[UsageAddition]:
    """Return what these changes, in order, add to each snapshot: one addition for each bucket and
    window. The window is that of the time at which the store wrote."""
    found: dict[_Snapshot, dict[int, list[UsagePart]]] = {}
    for change, part in _parts(changes):
        for window in windows:
            start = _start_of_hour(window, hour_start_ms(change.at_ms))
            parts = found.setdefault((change.address.home, window, start), {})
            parts.setdefault(change.address.shard, []).append(part)
    return [
        UsageAddition(
            *home[:3],
            window=window,
            start=start,
            expires_at_s=_expires_at_s(window, start, retention_days),
            parts={shard: tuple(listed) for shard, listed in parts.items()},
        )
        for (home, window, start), parts in found.items()
    ]


_Snapshot = tuple[BucketAddress, WindowType, datetime]
# Windows consist of hours, and a batch is seldom of more than two. Computed for each change, the
# starts of three windows would be half of the time that planning takes.
_start_of_hour = lru_cache(maxsize=64)(window_start)


def _parts(changes: Iterable[BucketChange]) -> Iterator[tuple[BucketChange, UsagePart]]:
    """A change that consumes nothing is left out: counted twice or never, it makes no
    difference."""
    for change in changes:
        if change.after is not None:
            counts = consumption(change.before, change.after)
            if counts:
                yield change, UsagePart(change.sequence, counts)


def _expires_at_s(window: WindowType, start: datetime, retention_days: int) -> int:
    """The lifetime begins at the end of the window. A snapshot that went before the last records
    of its window, which a stream keeps for a day, would count those again."""
    end = next_window(window, start) + timedelta(days=retention_days)
    return int(end.timestamp())


async def _add_all(
    io: Io, usage: StreamedUsage, additions: Sequence[UsageAddition]
) -> list[bool | StorageUnavailable | StoredDataError]:
    outcomes: list[bool | StorageUnavailable | StoredDataError] = []
    for first in range(0, len(additions), WRITES_AT_ONCE):
        some = additions[first : first + WRITES_AT_ONCE]
        for outcome in await io.gather([usage.add(addition) for addition in some]):
            if isinstance(outcome, BaseException):
                if not isinstance(outcome, StorageUnavailable | StoredDataError):
                    raise outcome
                logger.error("Usage was not counted: %s", outcome)
            outcomes.append(outcome)
    return outcomes


def _failed(
    batch: Sequence[BucketChange],
    additions: Sequence[UsageAddition],
    outcomes: Sequence[bool | StorageUnavailable | StoredDataError],
) -> frozenset[str]:
    """The records of all additions that may come through when they are delivered again."""
    lost: set[tuple[BucketAddress, str]] = set()
    for addition, outcome in zip(additions, outcomes, strict=True):
        if isinstance(outcome, StorageUnavailable):
            lost |= _keys(addition)
    return frozenset(c.record_id for c in batch if (c.address, c.sequence) in lost)


def _keys(addition: UsageAddition) -> set[tuple[BucketAddress, str]]:
    owner = (addition.namespace_id, addition.entity_id, addition.resource)
    return {
        (BucketAddress(*owner, shard), part.sequence)
        for shard, parts in addition.parts.items()
        for part in parts
    }
