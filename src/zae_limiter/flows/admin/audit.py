"""Audit events: made here, stored by the change they tell of."""

from __future__ import annotations

from typing import Any

from ...core.audit import AuditEvent, is_about_namespace, ulid
from ...core.exceptions import ValidationError
from ...core.validation import RESERVED_NAMESPACE, validate_principal, validate_text
from ...core.windows import iso_ms
from ...ports.io import Io
from ..scope import Scope, bounded

MAX_PAGE = 1000


def new_event(
    io: Io,
    action: str,
    entity_id: str,
    principal: str | None,
    resource: str | None = None,
    **details: Any,
) -> AuditEvent:
    """An event of now."""
    now_ms = io.now_ms()
    return AuditEvent(
        ulid(now_ms, io.entropy()),
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
    """Newest first. `entity_id` may also be `$SYSTEM`, `$RESOURCE:name` or `$NAMESPACE:name`."""
    validate_text("entity_id", entity_id)
    check_page_size(limit)
    if start_event_id is not None:
        validate_text("start_event_id", start_event_id)
    # Events about a namespace outlive it in the registry.
    place = RESERVED_NAMESPACE if is_about_namespace(entity_id) else scope.namespace_id
    return await scope.store.audit.read(place, entity_id, limit, start_event_id)


def check_page_size(limit: int, field: str = "limit") -> None:
    """A page holds between one and a thousand records."""
    if type(limit) is not int or not 1 <= limit <= MAX_PAGE:
        raise ValidationError(field, limit, f"must be an integer between 1 and {MAX_PAGE}")
