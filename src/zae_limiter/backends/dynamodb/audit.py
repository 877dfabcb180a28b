"""Audit events in DynamoDB."""

from __future__ import annotations

from ...core.audit import AuditEvent
from ...local.bounded import Bounded
from ..damage import readable
from .codec import decode_event_item, encode_event_item
from .expressions import Field
from .item_reader import ItemReader
from .pages import Query, read_pages
from .schema import calculate_ttl, key, pk_audit, pk_system, sk_audit, sk_config
from .table import Action, Table

DEFAULT_RETENTION_DAYS = 90
_DAY_S = 86_400
_MAX_DAYS = 36_500
_REMEMBERED_MS = 60_000
_MAX_REMEMBERED = 1000
_RETENTION = Field("audit_retention_days")


class DynamoAudit:
    """Events by namespace and entity."""

    def __init__(self, table: Table) -> None:
        self._table = table

    async def read(
        self, namespace_id: str, entity_id: str, limit: int, start_event_id: str | None
    ) -> list[AuditEvent]:
        query = Query(pk_audit(namespace_id, entity_id), prefix=sk_audit(""), newest_first=True)
        if start_event_id is not None:
            query = Query(
                query.partition,
                low=sk_audit(""),
                high=sk_audit(start_event_id),
                newest_first=True,
            )
        # One more than wanted: the event to start after may be among those found.
        items = await read_pages(self._table, query, limit + 1)
        events = readable(decode_event_item, items)
        return [event for event in events if event.event_id != start_event_id][:limit]


class Recorder:
    """A recorder makes the action by which a change records its event in its own transaction."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._retention: Bounded[str, tuple[int, int]] = Bounded(_MAX_REMEMBERED)

    async def recording(self, namespace_id: str, event: AuditEvent) -> Action:
        """Return the action that puts an event, to be kept as long as the namespace asks for."""
        days = await self._retention_days(namespace_id)
        expires_at_s = calculate_ttl(self._table.io.now_ms(), days * _DAY_S)
        return self._table.putting(encode_event_item(namespace_id, event, expires_at_s))

    async def _retention_days(self, namespace_id: str) -> int:
        """Return the retention that the system configuration says, read at most once a minute."""
        now_ms = self._table.io.now_ms()
        known = self._retention.get(namespace_id)
        if known is not None and now_ms < known[0]:
            return known[1]
        item = await self._table.get(key(pk_system(namespace_id), sk_config()))
        stored = ItemReader(item or {}).value(_RETENTION)
        days = stored if type(stored) is int and 0 < stored <= _MAX_DAYS else DEFAULT_RETENTION_DAYS
        self._retention.put(namespace_id, (now_ms + _REMEMBERED_MS, days))
        return days


async def keep_audit_events(table: Table, namespace_id: str, days: int) -> None:
    """Let audit events of a namespace be kept for so many days from now on."""
    pk = pk_system(namespace_id)
    terms = [_RETENTION.set(days), Field("GSI4PK").set(namespace_id), Field("GSI4SK").set(pk)]
    await table.update(key(pk, sk_config()), terms)
