"""What a namespace's state does not allow."""

from __future__ import annotations

from ..core.exceptions import NamespaceStateError
from ..ports.repository_protocol import NamespaceRecord


def still_active(record: NamespaceRecord) -> NamespaceStateError:
    """It cannot be purged: it was never deleted, or has been recovered since."""
    return NamespaceStateError(
        f"Namespace '{record.name}' ({record.namespace_id}) is active; delete it first",
        namespace_name=record.name,
        state=record.status,
    )
