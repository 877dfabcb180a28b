"""Audit events: made here, stored by the change they tell of."""

from __future__ import annotations

from typing import Any

from ...core.audit import AuditEvent, ulid
from ...core.exceptions import ValidationError
from ...core.validation import validate_principal, validate_text
from ...core.windows import iso_ms
from ..scope import Scope, bounded

MAX_PAGE = 1000


def new_event(
    scope: Scope,
    action: str,
    entity_id: str,
    principal: str | None,
    resource: str | None = None,
    **details: Any,
) -> AuditEvent:
    """An event of now."""
    now_ms = scope.io.now_ms()
    return AuditEvent(
        ulid(now_ms, scope.io.entropy()),
        iso_ms(now_ms),
        action,
        entity_id,
        validate_principal(principal),
        resource,
        details,
    )


@bounded
async def get_audit_events(
    scope: Scope, entity_id: str, limit: int, start_event_id: str | None
) -> list[AuditEvent]:
    """Newest first. `entity_id` may also be `$SYSTEM` or `$RESOURCE:name`."""
    validate_text("entity_id", entity_id)
    check_page_size(limit)
    if start_event_id is not None:
        validate_text("start_event_id", start_event_id)
    return await scope.store.audit.read(scope.namespace_id, entity_id, limit, start_event_id)


def check_page_size(limit: int, field: str = "limit") -> None:
    """A page holds between one and a thousand records."""
    if type(limit) is not int or not 1 <= limit <= MAX_PAGE:
        raise ValidationError(field, limit, f"must be an integer between 1 and {MAX_PAGE}")
