"""`zae-limiter audit` shows who changed limits, entities and namespaces, and when."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import click

from ..core.audit import AuditAction, AuditEvent, is_about_namespace
from ..core.exceptions import ValidationError
from ..core.limit import Limit
from ..core.limit_syntax import format_limit
from .options import examples, json_option, page_option, store_options
from .output import print_json, print_line, print_table
from .target import Target


@click.group()
def audit() -> None:
    """Audit events: changes of limits, entities and namespaces."""


@audit.command(
    "list",
    epilog=examples(
        "audit list -e key-1",
        "audit list -e '$RESOURCE:gpt-4'",
        "audit list -e '$NAMESPACE:tenant-a'",
    ),
)
@click.option(
    "--entity-id",
    "-e",
    required=True,
    help="The entity; $SYSTEM and $RESOURCE:name for defaults, $NAMESPACE:name for a namespace.",
)
@page_option
@click.option("--start-event-id", help="Only events older than this one.")
@json_option
@store_options
def list_events(
    entity_id: str, limit: int, start_event_id: str | None, as_json: bool, target: Target
) -> None:
    """List the changes of an entity, of defaults or of a namespace, newest first."""
    with target.registry() if is_about_namespace(entity_id) else target.connect() as repository:
        found = repository.get_audit_events(entity_id, limit, start_event_id)
    if as_json:
        print_json([event.to_dict() for event in found])
    elif not found:
        print_line(f"No audit events for '{entity_id}'")
    else:
        _print_events(found, limit)


def _print_events(found: list[AuditEvent], limit: int) -> None:
    print_table(
        ["Timestamp", "Action", "Principal", "Resource", "Change"],
        [(e.timestamp, e.action, e.principal or "-", e.resource or "-", _change(e)) for e in found],
    )
    if len(found) == limit:
        print_line(f"There may be more: --start-event-id {found[-1].event_id}")


def _change(event: AuditEvent) -> str:
    """Return what was set, in one line. Of a new entity, only what is not as usual."""
    is_new = event.action == AuditAction.ENTITY_CREATED
    told = [
        f"{name}={_value(name, value)}"
        for name, value in sorted(event.details.items())
        if value or (value is not None and not is_new)
    ]
    return "; ".join(told) or "-"


def _value(name: str, value: Any) -> str:
    if name == "limits":
        with suppress(KeyError, TypeError, ValueError, ValidationError):
            return ", ".join(format_limit(Limit.from_dict(limit)) for limit in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
