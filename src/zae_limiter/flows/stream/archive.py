"""Archiving the audit events that went because their lifetime was over.

A batch that is delivered again makes objects with the keys and bytes that they had before, so
nothing is archived twice. Events that somebody deleted were meant to go, and are not archived.
"""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Iterable, Sequence
from datetime import UTC

from ...core.changes import AuditRemoval
from ...core.exceptions import StorageUnavailable
from ...core.windows import parse_iso, window_key, window_start
from ...ports.archive import Archive, ArchiveObject

logger = logging.getLogger("zae_limiter")


async def archive_removals(
    archive: Archive, removals: Iterable[AuditRemoval]
) -> tuple[int, frozenset[str]]:
    """Archive the events of a batch. Return how many were, and the ids of the records that have to
    be delivered again because their object could not be stored."""
    archived = 0
    failed: set[str] = set()
    for day, expired in by_day(removals).items():
        try:
            await archive.put(pack(day, expired))
        except StorageUnavailable as error:
            logger.error("Audit events of %s were not archived: %s", day, error)
            failed |= {removal.record_id for removal in expired}
        else:
            archived += len(expired)
    return archived, frozenset(failed)


def by_day(removals: Iterable[AuditRemoval]) -> dict[str, list[AuditRemoval]]:
    """Return the expired events by the day on which they happened, each once and in the order of
    the stream."""
    distinct = {removal.record_id: removal for removal in removals if removal.expired}
    days: dict[str, list[AuditRemoval]] = {}
    for record_id in sorted(distinct, key=_place):
        removal = distinct[record_id]
        days.setdefault(_day(removal), []).append(removal)
    return days


def pack(day: str, expired: Sequence[AuditRemoval]) -> ArchiveObject:
    """Return the object of the events of one day. Its key names the first and the last record, so
    that a part of the batch, delivered alone, does not replace the whole."""
    year, month, date = day.split("-")
    span = f"{expired[0].record_id}-{expired[-1].record_id}"
    lines = "".join(f"{json.dumps(_line(removal), default=str)}\n" for removal in expired)
    return ArchiveObject(
        f"audit/year={year}/month={month}/day={date}/audit-{span}.jsonl.gz",
        # Without this, the time of packing would make the bytes differ.
        gzip.compress(lines.encode(), mtime=0),
    )


def _place(record_id: str) -> tuple[int, str]:
    return len(record_id), record_id


def _day(removal: AuditRemoval) -> str:
    """An event whose time cannot be read is filed under the day on which it went."""
    event = removal.event
    try:
        moment = parse_iso("" if isinstance(event, str) else event.timestamp).astimezone(UTC)
    except (ValueError, OverflowError):
        moment = window_start("daily", removal.at_ms)
    return window_key("daily", moment)


def _line(removal: AuditRemoval) -> dict[str, object]:
    event = removal.event
    if isinstance(event, str):
        return {"item": json.loads(event), "namespace_id": removal.namespace_id}
    return {
        "event_id": event.event_id,
        "entity_id": event.entity_id,
        "action": event.action,
        "timestamp": event.timestamp,
        "principal": event.principal,
        "resource": event.resource,
        "details": event.details,
        "namespace_id": removal.namespace_id,
    }
