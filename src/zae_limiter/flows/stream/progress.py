"""The progress of a reader: how far it has read each shard of a stream, and what it did."""

from __future__ import annotations

from dataclasses import dataclass, field

from .batch import BatchResult


@dataclass(slots=True, eq=False)
class ShardReading:
    """A shard reading says how far this reader has read a shard.

    `last_id` is the last record of a shard that gets no more, and `position` the last record that
    was read, at `last_ms` or before. `pause_s`: how long to wait before the next page. `is_ahead`:
    records were dealt with that the checkpoint does not have. `idle_until_ms`: another reader has
    the lease until then. `is_left`: it has renewed the lease since, so it is alive.
    """

    shard_id: str
    last_id: str | None = None
    position: str | None = None
    iterator: str | None = None
    is_ahead: bool = False
    has_ended: bool = False
    leased_until_ms: int = 0
    saved_ms: int = 0
    idle_until_ms: int = 0
    is_left: bool = False
    lag_ms: int = 0
    last_ms: int = 0
    pause_s: float = 0.0
    empty_pages: int = 0
    failures: int = 0


@dataclass(slots=True)
class FollowProgress:
    """The progress of a reader, in sums since it started."""

    records: int = 0
    processed: int = 0
    snapshots_updated: int = 0
    refills_written: int = 0
    splits: int = 0
    events_archived: int = 0
    skipped: int = 0
    failures: int = 0
    checkpoints: int = 0
    shards: dict[str, ShardReading] = field(default_factory=dict)

    @property
    def lag_ms(self) -> int:
        """How far this reader is behind, in the shard where it is farthest."""
        return max((reading.lag_ms for reading in self.shards.values()), default=0)

    @property
    def shards_of_others(self) -> int:
        """How many shards another reader has the lease of."""
        return sum(reading.idle_until_ms > 0 for reading in self.shards.values())

    def add(self, result: BatchResult) -> None:
        """Add the result of a batch."""
        usage = result.usage
        self.processed += usage.processed
        self.snapshots_updated += usage.snapshots_updated
        self.refills_written += usage.refills_written
        self.splits += usage.splits
        self.skipped += usage.skipped
        self.events_archived += result.events_archived
