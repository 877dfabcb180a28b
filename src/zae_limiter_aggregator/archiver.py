"""Expired audit events of a batch, kept in a bucket of S3."""

from __future__ import annotations

from collections.abc import Iterable

from zae_limiter.backends.dynamodb.stream_records import StreamRecord, decode_records
from zae_limiter.backends.s3 import S3Archive
from zae_limiter.flows.stream.archive import archive_removals
from zae_limiter.runtime.blocking import BlockingIo, run


def archive_audit_events(
    records: Iterable[StreamRecord], bucket: str, archive: S3Archive | None = None
) -> tuple[int, frozenset[str]]:
    """Archive the audit events that went by their lifetime. Return how many were, and the sequence
    numbers of the records that have to be delivered again."""
    chosen = archive or S3Archive(BlockingIo(), bucket)
    return run(archive_removals(chosen, decode_records(records).removals))
