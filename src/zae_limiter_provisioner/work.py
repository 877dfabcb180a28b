"""Plans and applies of the provisioner, on the table of its stack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.backends.dynamodb.table import Table
from zae_limiter.backends.dynamodb.wire.connect import open_client
from zae_limiter.core.exceptions import NamespaceNotFoundError
from zae_limiter.core.manifest_plan import ManifestPlan, forget_drifted
from zae_limiter.flows.admin import namespaces
from zae_limiter.flows.admin.provision import AppliedCounts, apply_plan, plan_manifest
from zae_limiter.flows.scope import Scope
from zae_limiter.ports.io import Io
from zae_limiter.runtime.blocking import BlockingIo

from .requests import ProvisionRequest

_MARGIN_MS = 15_000


class OutOfTimeError(RuntimeError):
    """The Lambda's time is over before all records were changed. Those that were stay so."""


@dataclass(frozen=True, slots=True)
class Provisioner:
    """The table that limits are applied to."""

    store: DynamoStore
    io: Io

    @classmethod
    def open(cls, table_name: str) -> Provisioner:
        """Open the table, without a call. Region and credentials are those of the Lambda."""
        io = BlockingIo()
        return cls(DynamoStore(Table(open_client(io, blocking=True), table_name)), io)

    async def plan(self, request: ProvisionRequest) -> ManifestPlan:
        """Compare a manifest with the store."""
        return await plan_manifest(await self._scope(request), request.manifest)

    async def apply(
        self, request: ProvisionRequest, remaining_ms: Callable[[], int]
    ) -> AppliedCounts:
        """Make the store agree with a manifest, as far as the time suffices."""

        def check_time(done: int, steps: int) -> None:
            if done < steps and remaining_ms() < _MARGIN_MS:
                raise OutOfTimeError(
                    f"the time is over after {done:,} of {steps:,} changes: deploy again, which"
                    " makes the rest"
                )

        scope = await self._scope(request)
        plan = await plan_manifest(scope, request.manifest)
        if request.action == "delete":
            plan = forget_drifted(plan)
        return await apply_plan(
            scope, plan, request.principal, force=request.force, progress=check_time
        )

    async def _scope(self, request: ProvisionRequest) -> Scope:
        if request.namespace_id is not None:
            found = await self.store.namespaces.read_id(request.namespace_id)
            if found is None or found.status != "active":
                raise NamespaceNotFoundError(request.namespace_id)
            return Scope(self.store, self.io, found.namespace_id)
        name = request.manifest.namespace
        if request.action == "apply":
            record = await namespaces.find_or_register(self.store, self.io, name)
        else:
            record = await namespaces.find(self.store, name)
        return Scope(self.store, self.io, record.namespace_id)


def counts_to_data(counts: AppliedCounts) -> dict[str, Any]:
    """Return counts as attributes of the resource."""
    return {
        "Created": counts.created,
        "Updated": counts.updated,
        "Deleted": counts.deleted,
        "Adopted": counts.adopted,
    }


async def apply_resource(
    provisioner: Provisioner, request: ProvisionRequest, remaining_ms: Callable[[], int]
) -> AppliedCounts:
    """Apply a request of CloudFormation. A namespace that is gone has nothing to delete."""
    try:
        return await provisioner.apply(request, remaining_ms)
    except NamespaceNotFoundError:
        if request.action == "delete":
            return AppliedCounts()
        raise
