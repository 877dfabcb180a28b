"""The dictionaries that the roles of the memory store share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from ...core.audit import AuditEvent
from ...core.bucket import Bucket, BucketAddress
from ...core.hierarchy import ConfigSlot
from ...core.models import Entity, LimiterConfig
from ...core.receipts import Receipt, ReceiptKey
from ...core.usage import UsageCounts
from ...core.windows import WindowType
from ...ports.repository_protocol import NamespaceRecord

UsageKey = tuple[str, str, str, int]  # namespace id, entity id, resource, start of the hour


SnapshotKey = tuple[str, str, str, WindowType, datetime]


@dataclass(slots=True)
class StreamSnapshot:
    """A stream snapshot is a snapshot that a stream is counted into: the counts, and the last
    sequence that was counted of each shard."""

    counts: UsageCounts = field(default_factory=UsageCounts)
    counted: dict[int, str] = field(default_factory=dict)


class Reading(NamedTuple):
    """A reading is the state of a bucket's counters before its first write of an hour."""

    hour_ms: int
    counts: UsageCounts


@dataclass(slots=True)
class Tables:
    """The dictionaries of a store. The caller holds the lock while it touches any of them.

    `readings`: one for each bucket. `usage`: the hours before these readings. `snapshots`: those
    that streams of other stores are counted into.
    """

    lock: AbstractContextManager[object]
    buckets: dict[BucketAddress, Bucket] = field(default_factory=dict)
    readings: dict[BucketAddress, Reading] = field(default_factory=dict)
    receipts: dict[ReceiptKey, Receipt] = field(default_factory=dict)
    configs: dict[tuple[str, ConfigSlot], LimiterConfig] = field(default_factory=dict)
    marks: dict[tuple[str, ConfigSlot], str] = field(default_factory=dict)
    entities: dict[tuple[str, str], Entity] = field(default_factory=dict)
    namespaces: dict[str, NamespaceRecord] = field(default_factory=dict)
    audit: dict[tuple[str, str], list[AuditEvent]] = field(
        default_factory=lambda: defaultdict(list)
    )
    usage: dict[UsageKey, UsageCounts] = field(default_factory=lambda: defaultdict(UsageCounts))
    snapshots: dict[SnapshotKey, StreamSnapshot] = field(
        default_factory=lambda: defaultdict(StreamSnapshot)
    )

    def record(self, namespace_id: str, event: AuditEvent) -> None:
        """Keep a copy of an audit event, since its details are mutable."""
        self.audit[namespace_id, event.entity_id].append(deepcopy(event))


def drop(table: dict[Any, Any], doomed: Callable[[Any], bool]) -> int:
    """Delete the records whose key is doomed, and count them."""
    keys = [key for key in table if doomed(key)]
    for key in keys:
        del table[key]
    return len(keys)
