"""The Lambda that reads the table's stream: a thin shell over `zae_limiter.flows.stream`.

`handler` answers the events of Lambda, `processor` counts usage and looks after bucket items,
`archiver` keeps expired audit events. `environment` has the settings, `logs` the JSON lines.
"""

from __future__ import annotations

from .archiver import archive_audit_events
from .handler import handler
from .processor import (
    BucketRefillState,
    ConsumptionDelta,
    LimitRefillInfo,
    ParsedBucketLimit,
    ParsedBucketRecord,
    ProcessResult,
    aggregate_bucket_states,
    extract_deltas,
    process_stream_records,
    propagate_shard_count,
    try_proactive_shard,
    try_refill_bucket,
)

__all__ = [
    "BucketRefillState",
    "ConsumptionDelta",
    "LimitRefillInfo",
    "ParsedBucketLimit",
    "ParsedBucketRecord",
    "ProcessResult",
    "aggregate_bucket_states",
    "archive_audit_events",
    "extract_deltas",
    "handler",
    "process_stream_records",
    "propagate_shard_count",
    "try_proactive_shard",
    "try_refill_bucket",
]
