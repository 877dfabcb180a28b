"""Usage counted from the records that Lambda delivers, and upkeep of the bucket items in them.

Each function here is one step of `zae_limiter.flows.stream`, on records as Lambda delivers them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.backends.dynamodb.stream_records import StreamRecord, decode_records
from zae_limiter.backends.dynamodb.table import Table
from zae_limiter.backends.dynamodb.wire.connect import open_client
from zae_limiter.backends.s3 import S3Archive
from zae_limiter.core.bucket import BucketAddress, Cell
from zae_limiter.core.changes import BucketChange, ItemActivity, activities
from zae_limiter.core.usage import consumption
from zae_limiter.core.validation import RESERVED_NAMESPACE
from zae_limiter.flows.scope import Scope
from zae_limiter.flows.stream.aggregate import WRITES_AT_ONCE, in_order
from zae_limiter.flows.stream.batch import BatchResult, StreamWork, process_batch
from zae_limiter.flows.stream.refills import refill_items
from zae_limiter.flows.stream.splits import split_busy_buckets
from zae_limiter.runtime.blocking import BlockingIo, run
from zae_limiter.runtime.parallel import Threads

from .environment import LambdaSettings

ParsedBucketRecord = BucketChange
ParsedBucketLimit = Cell
BucketRefillState = ItemActivity
LimitRefillInfo = Cell


class ConsumptionDelta(NamedTuple):
    """A consumption delta is what one write consumed of one limit; negative where it gave back."""

    namespace_id: str
    entity_id: str
    resource: str
    limit_name: str
    tokens_delta_milli: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """The outcome of a batch. `failed` has the sequence numbers of the records that have to be
    delivered again."""

    processed: int = 0
    snapshots_updated: int = 0
    refills_written: int = 0
    splits: int = 0
    events_archived: int = 0
    skipped: int = 0
    errors: list[str] = field(default_factory=list)
    failed: frozenset[str] = frozenset()

    def to_body(self) -> dict[str, Any]:
        """Return the counts as the handler answers with them."""
        return {
            "processed": self.processed,
            "snapshots_updated": self.snapshots_updated,
            "refills_written": self.refills_written,
            "splits": self.splits,
            "events_archived": self.events_archived,
            "skipped": self.skipped,
            "errors": self.errors,
        }


def open_work(settings: LambdaSettings) -> StreamWork:
    """Open the table, without a call. Region and credentials are those of the Lambda."""
    # This thread makes one of the writes. With fewer workers, a batch of many entities would wait
    # for one answer after the other.
    io = BlockingIo(gather=Threads(WRITES_AT_ONCE - 1))
    store = DynamoStore(Table(open_client(io, blocking=True), settings.table_name))
    archive = S3Archive(io, settings.archive_bucket) if settings.archive_bucket else None
    return StreamWork(Scope(store, io, RESERVED_NAMESPACE), store.usage, settings.stream, archive)


def process_stream_records(records: Sequence[StreamRecord], work: StreamWork) -> ProcessResult:
    """Count the usage of a batch, look after its bucket items, and archive its audit events."""
    return _result(run(process_batch(work, decode_records(records))))


def _result(batch: BatchResult) -> ProcessResult:
    usage = batch.usage
    errors = [f"{len(batch.failed)} record(s) have to be delivered again"] if batch.failed else []
    if usage.skipped:
        errors.append(f"{usage.skipped} record(s) or snapshot(s) could not be read")
    return ProcessResult(
        usage.processed,
        usage.snapshots_updated,
        usage.refills_written,
        usage.splits,
        batch.events_archived,
        usage.skipped,
        errors,
        batch.failed,
    )


def extract_deltas(records: Iterable[StreamRecord]) -> list[ConsumptionDelta]:
    """Return what each write of a batch consumed of each limit."""
    return [
        ConsumptionDelta(*change.address[:3], name, amount_milli, change.at_ms)
        for change in in_order(decode_records(records).buckets)
        if change.after is not None
        for name, amount_milli in consumption(change.before, change.after).consumed_milli.items()
    ]


def aggregate_bucket_states(
    records: Iterable[StreamRecord],
) -> dict[BucketAddress, BucketRefillState]:
    """Return the last image of each bucket item of a batch, and what all writes consumed."""
    return activities(in_order(decode_records(records).buckets))


def try_refill_bucket(scope: Scope, address: BucketAddress, state: BucketRefillState) -> bool:
    """Refill a bucket item that may soon be short, and return whether it was refilled."""
    return run(refill_items(scope, {address: state})) == 1


def try_proactive_shard(scope: Scope, address: BucketAddress, state: BucketRefillState) -> bool:
    """Split a bucket whose item has used most of its write allowance, and return whether it was
    split."""
    return run(split_busy_buckets(scope, (), {address: state})) > 0


def propagate_shard_count(scope: Scope, records: Iterable[StreamRecord]) -> int:
    """Bring all items of the buckets whose first item was split to its shard count, and return how
    many splits that took."""
    return run(split_busy_buckets(scope, in_order(decode_records(records).buckets), {}))
