"""Audit events: who changed what, when."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

SYSTEM_AUDIT_ID = "$SYSTEM"
_NAMESPACE_PREFIX = "$NAMESPACE:"
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def resource_audit_id(resource: str) -> str:
    """Return the id under which changes of a resource's defaults are recorded."""
    return f"$RESOURCE:{resource}"


def namespace_audit_id(name: str) -> str:
    """Return the id under which changes of the registration of a namespace are recorded."""
    return f"{_NAMESPACE_PREFIX}{name}"


def is_about_namespace(audit_id: str) -> bool:
    """Return whether an id is that of a namespace's registration, not of anything in it."""
    return audit_id.startswith(_NAMESPACE_PREFIX)


class AuditAction:
    """The actions that an audit event may name."""

    ENTITY_CREATED = "entity_created"
    ENTITY_UPDATED = "entity_updated"
    ENTITY_DELETED = "entity_deleted"
    LIMITS_SET = "limits_set"
    LIMITS_DELETED = "limits_deleted"
    NAMESPACE_REGISTERED = "namespace_registered"
    NAMESPACE_DELETED = "namespace_deleted"
    NAMESPACE_RECOVERED = "namespace_recovered"
    NAMESPACE_PURGED = "namespace_purged"


@dataclass
class AuditEvent:
    """An audit event records one change."""

    event_id: str
    timestamp: str
    action: str
    entity_id: str
    principal: str | None = None
    resource: str | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON-ready values, without fields that are unknown."""
        said = {
            "event_id": self.event_id,
            "timestamp": self.timestamp,
            "action": self.action,
            "entity_id": self.entity_id,
            "principal": self.principal,
            "resource": self.resource,
            "details": self.details,
        }
        return {key: value for key, value in said.items() if value not in (None, {})}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> AuditEvent:
        """The inverse of `to_dict`."""
        return cls(
            data["event_id"],
            data["timestamp"],
            data["action"],
            data["entity_id"],
            data.get("principal"),
            data.get("resource"),
            data.get("details", {}),
        )

    def with_details(self, **details: Any) -> AuditEvent:
        """Return the event with more details."""
        return replace(self, details={**self.details, **details})


def ulid(at_ms: int, entropy: int) -> str:
    """Return 26 characters that sort by time: 48 bits of time, 80 bits of entropy."""
    number = (at_ms << 80) | (entropy & (1 << 80) - 1)
    return "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))
