"""The registration of the namespace that a process works in, confirmed once in a TTL.

A namespace may be deleted or purged, and its file or table deleted and made anew, while a process
has it open. Without this check, the process would go on charging buckets that no other client sees.
"""

from __future__ import annotations

from contextlib import suppress

from ...core.exceptions import NamespaceStateError, StorageUnavailable
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
        # From now on every call asks, though the last confirmation is younger than the TTL.
        cache.registered_at_ms = 0
        cache.invalidate()
        raise _gone(scope, record)
    cache.registered_at_ms = read_at_ms


async def confirm_data(scope: Scope) -> None:
    """Raise `NamespaceStateError` if the namespace has gone with its data. A deleted namespace that
    may be recovered has its data: what is owed to it is written, also while that is unknown."""
    try:
        with suppress(StorageUnavailable):
            await confirm_registration(scope)
    except NamespaceStateError:
        with suppress(StorageUnavailable):
            if await scope.store.namespaces.read_id(scope.namespace_id) is None:
                raise


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
