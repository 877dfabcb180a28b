"""The first records of a deployed table: its versions, the namespace `default`, and retention."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from .._version import __version__
from ..backends.dynamodb.audit import keep_audit_events
from ..backends.dynamodb.store import DynamoStore
from ..backends.dynamodb.url import dynamodb_url
from ..backends.dynamodb.versions import TABLE_VERSION
from ..backends.store_url import OpenRequest
from ..backends.urls import parse_url
from ..core.exceptions import InfrastructureError
from ..flows.admin import namespaces
from ..flows.admin.versions import require_deployable
from ..ports.deployment import VersionRecord
from ..ports.io import Io
from ..runtime.blocking import BlockingIo, run
from .aws import Aws

T = TypeVar("T")
_NAMESPACE = "default"
# As long as boto3 waits. A deployment takes minutes, and must not fail for one slow call.
_PATIENCE_S = 60


def set_up_table(
    aws: Aws, stack_name: str, *, has_lambda: bool, retention_days: int | None
) -> None:
    """Write the records that a deployed table begins with. Repeating it changes nothing more.
    Without `retention_days`, audit events are kept for as long as before."""

    async def write(store: DynamoStore, io: Io) -> None:
        record = await namespaces.ensure(store, io, _NAMESPACE)
        if retention_days is not None:
            await keep_audit_events(store.table, record.namespace_id, retention_days)
        # The version record comes last: it says that everything before it is in place.
        await _write_versions(store, has_lambda)

    with_store(aws, stack_name, write)


async def _write_versions(store: DynamoStore, has_lambda: bool) -> None:
    lambda_version = __version__ if has_lambda else None
    known = await store.versions.read()
    if known is None:
        await store.versions.write(
            VersionRecord(TABLE_VERSION, lambda_version, updated_by="deploy")
        )
    elif known.lambda_version != lambda_version:
        # The schema is the migrations' business, and the oldest client an operator's.
        changed = replace(known, lambda_version=lambda_version, updated_by="deploy")
        await store.versions.write(changed)


def require_deployable_table(aws: Aws, stack_name: str, *, allow_downgrade: bool) -> None:
    """Raise an error if the version record of a table forbids this client to deploy to it."""

    async def read(store: DynamoStore, _: Io) -> None:
        record = store.opened_version
        if record is not None:
            require_deployable(record, stack_name, allow_downgrade=allow_downgrade)

    with_store(aws, stack_name, read)


def with_store(aws: Aws, stack_name: str, use: Callable[[DynamoStore, Io], Awaitable[T]]) -> T:
    """Open the store of a stack for the length of a call, without creating anything."""

    async def opened() -> T:
        io = BlockingIo()
        place = parse_url(dynamodb_url(stack_name, aws.region, aws.endpoint_url))
        url = place.with_timeouts(_PATIENCE_S, _PATIENCE_S, _PATIENCE_S)
        store = await url.open(io, OpenRequest(create=False))
        try:
            if not isinstance(store, DynamoStore):
                raise InfrastructureError(f"{stack_name} is not a table")
            return await use(store, io)
        finally:
            await store.close()
            await io.close()

    return run(opened())
