"""Dealing with a batch of changes as a whole: usage is counted and audit events are archived."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...core.changes import ChangeBatch
from ...ports.archive import Archive
from ...ports.repository_protocol import StreamedUsage
from ..scope import Scope
from .aggregate import StreamResult, StreamSettings, aggregate
from .archive import archive_removals


@dataclass(frozen=True, slots=True)
class StreamWork:
    """Stream work is all that a reader needs to deal with batches: the store, its snapshots, an
    archive if audit events are to be kept, and settings."""

    scope: Scope
    usage: StreamedUsage
    settings: StreamSettings
    archive: Archive | None = None

    @property
    def name(self) -> str:
        """A name for this kind of work: other windows, or an archive, are other work."""
        return "+".join((*self.settings.windows, *(("archive",) if self.archive else ())))

    def concerns(self, batch: ChangeBatch) -> bool:
        """Whether a batch tells anything that is dealt with here. The reader's own snapshots and
        checkpoints, which come back as records, tell nothing: if they did, an idle table would be
        written to for ever."""
        return bool(batch.buckets or (self.archive and batch.removals))


@dataclass(frozen=True, slots=True)
class BatchResult:
    """A batch result is what was counted and archived. `failed` has the ids of the records that
    have to be delivered again."""

    usage: StreamResult
    events_archived: int
    failed: frozenset[str]


async def process_batch(work: StreamWork, batch: ChangeBatch) -> BatchResult:
    """Count the usage of a batch, and archive its audit events if there is an archive."""
    usage = await aggregate(work.scope, work.usage, batch.buckets, work.settings)
    usage = replace(usage, skipped=usage.skipped + batch.skipped)
    if work.archive is None:
        return BatchResult(usage, 0, usage.failed)
    archived, failed = await archive_removals(work.archive, batch.removals)
    return BatchResult(usage, archived, usage.failed | failed)
