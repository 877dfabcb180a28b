"""Errors about the state of a namespace."""

from __future__ import annotations

from ..core.exceptions import NamespaceStateError
from ..ports.repository_protocol import NamespaceRecord


def still_active(record: NamespaceRecord) -> NamespaceStateError:
    """Return the error that an active namespace cannot be purged."""
    return NamespaceStateError(
        f"Namespace '{record.name}' ({record.namespace_id}) is active; delete it first",
        namespace_name=record.name,
        state=record.status,
    )
