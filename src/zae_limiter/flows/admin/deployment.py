"""The table that a store lives in, and the versions of its parts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ...core.exceptions import InfrastructureError
from ...core.validation import RESERVED_NAMESPACE, validate_text
from ...core.windows import iso_ms
from ...ports.deployment import DeployedStore, VersionRecord
from ..scope import Scope


async def create_table(scope: Scope) -> None:
    """Make the table if there is none. Other stores were made when they were opened."""
    if isinstance(scope.store, DeployedStore):
        await scope.store.create_table()


async def delete_table(scope: Scope) -> None:
    """Delete everything that is stored, and the table if there is one."""
    if isinstance(scope.store, DeployedStore):
        await scope.store.delete_table()
    else:
        await _delete_namespaces(scope)
    scope.local.config_cache.invalidate()


async def _delete_namespaces(scope: Scope) -> None:
    namespaces, now = scope.store.namespaces, iso_ms(scope.io.now_ms())
    for record in await namespaces.active():
        await namespaces.delete(record.name, now)
    for record in await namespaces.orphans():
        await namespaces.purge(record.namespace_id)
    # What is left are the audit events about namespaces.
    await namespaces.purge(RESERVED_NAMESPACE)


async def get_version_record(scope: Scope) -> dict[str, Any] | None:
    """The version record as users see it."""
    if not isinstance(scope.store, DeployedStore):
        return None
    record = await scope.store.versions.read()
    return None if record is None else asdict(record)


async def set_version_record(
    scope: Scope,
    schema_version: str,
    lambda_version: str | None,
    client_min_version: str | None,
    updated_by: str | None,
) -> None:
    """Replace the version record."""
    texts = {
        "schema_version": schema_version,
        "lambda_version": lambda_version,
        "client_min_version": client_min_version,
        "updated_by": updated_by,
    }
    for field, text in texts.items():
        if text is not None or field == "schema_version":
            validate_text(field, text)
    if not isinstance(scope.store, DeployedStore):
        raise InfrastructureError(
            f"{scope.settings.stack_name} has no version record: it is not a table"
        )
    await scope.store.versions.write(
        VersionRecord(
            schema_version, lambda_version, client_min_version or "0.0.0", updated_by=updated_by
        )
    )


async def can_ping(scope: Scope, timeout_s: float) -> bool:
    """True when the store answers in time, and can be written to."""
    try:
        await scope.io.within(scope.store.ping(), timeout_s)
    except Exception:
        return False
    return True
