"""Changes: the values in which a stream of changes tells what was written to a store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from .audit import AuditEvent
from .bucket import Bucket, BucketAddress
from .usage import UsageCounts, consumption


class BucketChange(NamedTuple):
    """A bucket change is one write to one bucket item, with the images around it.

    `sequence` rises with every write to the item, also if the item was deleted meanwhile, and
    compares as text. `at_ms` is the time at which the store says it wrote. `record_id` is the
    stream's own name for the record. There is no `before` when the item was made, and no `after`
    when it went.
    """

    address: BucketAddress
    sequence: str
    at_ms: int
    before: Bucket | None
    after: Bucket | None
    record_id: str


class AuditRemoval(NamedTuple):
    """An audit removal tells that an audit event went: `expired` by its lifetime, or deleted. An
    event that cannot be read is the JSON text of the record that held it."""

    namespace_id: str
    event: AuditEvent | str
    expired: bool
    at_ms: int
    record_id: str


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """A change batch is what some records of a stream tell (`decode_records` of the DynamoDB store
    reads them). `skipped` counts the records that should have told something and could not be
    read."""

    buckets: tuple[BucketChange, ...] = ()
    removals: tuple[AuditRemoval, ...] = ()
    skipped: int = 0


@dataclass(slots=True)
class ItemActivity:
    """An item activity sums up what a batch tells of one bucket item: its last image, when that
    was written, and what all writes consumed."""

    image: Bucket
    at_ms: int
    counts: UsageCounts = field(default_factory=UsageCounts)


def activities(changes: Iterable[BucketChange]) -> dict[BucketAddress, ItemActivity]:
    """Sum up what these changes, in the order of their sequences, tell of each item that is still
    there after them."""
    found: dict[BucketAddress, ItemActivity] = {}
    for change in changes:
        if change.after is None:
            found.pop(change.address, None)
            continue
        activity = found.setdefault(change.address, ItemActivity(change.after, change.at_ms))
        activity.image, activity.at_ms = change.after, change.at_ms
        activity.counts.add(consumption(change.before, change.after))
    return found
