"""Audit records."""

from __future__ import annotations

from ...core.audit import AuditEvent
from ...core.hierarchy import SYSTEM_SLOT
from ...core.models import LimiterConfig
from .trial import Trial, same


async def _recorded(trial: Trial, count: int, entity_id: str) -> list[AuditEvent]:
    """Events of an entity, newest first."""
    events = [trial.event(entity_id) for _ in range(count)]
    change = LimiterConfig(on_unavailable="allow")
    for event in events:
        await trial.store.configs.write(trial.namespace_id, SYSTEM_SLOT, change, event)
    return events[::-1]


async def check_events_are_read_newest_first_in_pages(trial: Trial) -> None:
    wanted = await _recorded(trial, 7, "$SYSTEM")
    read, namespace_id = trial.store.audit.read, trial.namespace_id
    same(await read(namespace_id, "$SYSTEM", 1000, None), wanted, "All")
    same(await read(namespace_id, "$SYSTEM", 3, None), wanted[:3], "The first page")
    same(await read(namespace_id, "$SYSTEM", 3, wanted[2].event_id), wanted[3:6], "The second page")
    same(await read(namespace_id, "$SYSTEM", 3, wanted[5].event_id), wanted[6:], "The last page")
    same(await read(namespace_id, "$SYSTEM", 3, wanted[6].event_id), [], "After the last page")


async def check_events_of_others_are_not_read(trial: Trial) -> None:
    other = trial.other_tenant()
    await _recorded(trial, 1, "$RESOURCE:gpt-4")
    await _recorded(trial, 1, "key-10")
    mine = await _recorded(trial, 1, "key-1")
    await _recorded(other, 1, "key-1")
    same(await trial.store.audit.read(trial.namespace_id, "key-1", 10, None), mine, "key-1")
    same(await trial.store.audit.read(trial.namespace_id, "key", 10, None), [], "key")
