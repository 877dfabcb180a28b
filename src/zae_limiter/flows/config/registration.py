"""The registration of the namespace that a process works in, confirmed once in a TTL.

A namespace may be deleted or purged, and its file or table deleted and made anew, while a process
has it open. Without this check, the process would go on charging buckets that no other client sees.
"""

from __future__ import annotations

from ...core.exceptions import NamespaceStateError
from ...ports.repository_protocol import NamespaceRecord
from ..scope import Scope


async def confirm_registration(scope: Scope, *, is_cached: bool = True) -> None:
    """Raise `NamespaceStateError` if the name no longer leads to the namespace of the scope.

    The read is made once in a TTL, and shared by all tasks. A failure is not remembered, so that a
    namespace that is recovered serves at once.

    `is_cached`: a confirmation within the last TTL is enough.
    """
    cache = scope.local.config_cache
    if not scope.namespace_name or (is_cached and cache.is_registered(scope.io.now_ms())):
        return

    async def read() -> tuple[int, NamespaceRecord | None]:
        return scope.io.now_ms(), await scope.store.namespaces.read(scope.namespace_name)

    key = (scope.namespace_id, "registration")
    read_at_ms, record = await scope.local.config_reads.share(scope.io, key, read)
    if record is None or record.namespace_id != scope.namespace_id:
        raise _gone(scope, record)
    cache.registered_at_ms = read_at_ms


def _gone(scope: Scope, record: NamespaceRecord | None) -> NamespaceStateError:
    problem, state = "is no longer registered", "deleted"
    if record is not None:
        problem, state = f"has been registered anew as {record.namespace_id}", "re-registered"
    return NamespaceStateError(
        f"Namespace '{scope.namespace_name}' ({scope.namespace_id}) {problem}: it was deleted, or"
        " its store was; open the repository again",
        namespace_name=scope.namespace_name,
        state=state,
    )
