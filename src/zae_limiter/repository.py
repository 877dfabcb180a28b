"""This module is the asynchronous repository: everything that is stored, apart from acquiring."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self, Unpack

from .builder import BuilderSteps
from .core.hierarchy import SYSTEM_SLOT
from .core.limit import BucketState, Limit
from .core.models import BucketBalance, OnUnavailableAction
from .flows.admin import balances, capacity, deployment, namespaces
from .flows.admin import limits as stored_limits
from .flows.admin.namespaces import register_all
from .flows.scope import DEFAULT_TTL_MULTIPLIER, Scope
from .infra.options import StackOptions
from .naming import DEFAULT_NAMESPACE
from .opening import (
    ConnectOptions,
    OpenOptions,
    check_opening,
    close_store,
    open_scope,
)
from .records import Records
from .repository_base import RepositoryBase
from .runtime.asyncio_driver import AsyncioIo, drive
from .unopened import name_stack, unopened_scope, warn_ensure, warn_unopened


async def _close(opened: tuple[Scope, str]) -> None:
    scope, _ = opened
    await close_store(scope.store, scope.io)


class Repository(Records, RepositoryBase):
    """A repository gives access to the limits, entities and records of one namespace of a store.

    repository = await Repository.open(url="sqlite:///limits.db")
    repository = await Repository.open(stack="my-stack", region="us-east-1")
    """

    def __init__(
        self,
        name: str,
        region: str | None = None,
        endpoint_url: str | None = None,
        stack_options: StackOptions | None = None,
        config_cache_ttl: float = 60,
        *,
        rejection_cache_ttl: float | None = None,
        rejection_cache_size: int | None = None,
        bucket_ttl_multiplier: int = DEFAULT_TTL_MULTIPLIER,
        _skip_deprecation_warning: bool = False,
    ) -> None:
        """Name a stack without opening it. Deprecated: `open` and `builder` replace it."""
        if not _skip_deprecation_warning:
            warn_unopened(type(self).__name__)
        options: ConnectOptions = {
            "region": region,
            "endpoint_url": endpoint_url,
            "config_cache_ttl": config_cache_ttl,
            "rejection_cache_ttl": rejection_cache_ttl,
            "rejection_cache_size": rejection_cache_size,
            "bucket_ttl_multiplier": bucket_ttl_multiplier,
        }
        opening = name_stack(name, options)
        io = AsyncioIo(opening.clock)
        self._settle(
            unopened_scope(opening, io, blocking=False), opening.namespace, owns_store=True
        )
        self._stack_options = stack_options

    @classmethod
    async def open(
        cls,
        namespace: str | None = None,
        **options: Unpack[OpenOptions],
    ) -> Self:
        """Open the store of a URL (or `ZAEL_URL`); create the store and the namespace if needed.

        Without `url` the store is the DynamoDB table of `stack` (or `ZAEL_STACK`, or `zae-limiter`)
        in `region`, or at `endpoint_url`. A missing table is created only with `create=True`, or
        where the endpoint is not AWS itself. `transport` is "wire" or "botocore", for programs that
        patch or trace botocore. `connect_timeout` (2) and `read_timeout` (4) are the seconds that
        the client waits for DynamoDB; a URL can set them, too. `total_timeout` (5) bounds a call
        with all its retries, on every store; after `breaker_failures` (5) of them in a row, calls
        fail at once until the store answers again. A deployed Lambda that is older than the client
        is updated with `auto_update=True`, an error with False, and reported without either; the
        stored setting counts unless one is given. Where `strict_version` is stored, any other
        version is an error.

        Configuration is cached for `config_cache_ttl` (60) seconds, and a refusal is remembered for
        `refusal_cache_ttl` (1), of at most `refusal_cache_size` (10,000) buckets;
        `rejection_cache_ttl` and `rejection_cache_size` are other names of these. With `coalesce`
        (True), writes of this process that meet at a bucket item are sent as one; `linger_ms` (0)
        makes such a batch wait for followers. An unused bucket may expire after
        `bucket_ttl_multiplier` (7) times the time that it takes to fill. `clock` is for tests.
        """
        opening = check_opening(namespace, options)
        io = AsyncioIo(opening.clock, parallel_helps=not opening.store.is_embedded)
        scope, name = await drive(open_scope(opening, io, blocking=False, create=True), _close)
        return cls.on_scope(scope, name, owns_store=True)

    @classmethod
    async def connect(
        cls,
        namespace: str | None = None,
        **options: Unpack[ConnectOptions],
    ) -> Self:
        """Open a store and namespace that exist; nothing is ever created. The options are those of
        `open`."""
        opening = check_opening(namespace, options, ConnectOptions)
        io = AsyncioIo(opening.clock, parallel_helps=not opening.store.is_embedded)
        scope, name = await drive(open_scope(opening, io, blocking=False, create=False), _close)
        return cls.on_scope(scope, name, owns_store=True)

    @classmethod
    def builder(cls) -> RepositoryBuilder:
        """Return a builder, which opens a repository step by step; the namespace must be
        registered."""
        return RepositoryBuilder()

    async def __aenter__(self) -> Self:
        await self._provide()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the store. A repository made by `namespace()` leaves the store open for its
        origin."""
        if self._owns_store:
            await drive(close_store(self.scope.store, self.scope.io))

    async def namespace(
        self,
        name: str,
        *,
        on_unavailable: OnUnavailableAction | None = None,
        bucket_ttl_multiplier: int | None = None,
    ) -> Self:
        """Return a repository for another registered namespace of the store.

        `on_unavailable` is stored there, for all clients. Without `bucket_ttl_multiplier` the new
        repository has that of this one.
        """
        multiplier = self._multiplier(bucket_ttl_multiplier)
        record = await drive(namespaces.find(self.scope.store, name))
        scope = self._scope_of(record, multiplier)
        if on_unavailable is not None:
            await drive(stored_limits.set_on_unavailable(scope, on_unavailable))
        return type(self).on_scope(scope, record.name, owns_store=False)

    async def register_namespace(self, namespace: str, principal: str | None = None) -> str:
        """Register a name, or find it registered, and return its id."""
        scope = self.scope
        flow = namespaces.register(scope.store, scope.io, namespace, principal)
        return (await drive(scope.in_time(flow))).namespace_id

    async def register_namespaces(
        self, namespaces: list[str], principal: str | None = None
    ) -> dict[str, str]:
        """Register several names and return their ids."""
        return await drive(register_all(self.scope.store, self.scope.io, namespaces, principal))

    async def get_namespace(self, namespace: str) -> dict[str, str] | None:
        """Return the active namespace of this name."""
        record = await drive(namespaces.look_up(self.scope.store, namespace))
        return None if record is None else namespaces.namespace_dict(record)

    async def list_namespaces(self) -> list[dict[str, str]]:
        """List all active namespaces."""
        found = await drive(self.scope.store.namespaces.active())
        return [namespaces.listed_namespace_dict(record) for record in found]

    async def delete_namespace(self, namespace: str, principal: str | None = None) -> None:
        """Free the name; the data stays until the namespace is purged or recovered."""
        await drive(namespaces.delete(self.scope.store, self.scope.io, namespace, principal))

    async def list_orphan_namespaces(self) -> list[dict[str, str]]:
        """List the deleted namespaces whose data still exists."""
        found = await drive(self.scope.store.namespaces.orphans())
        return [namespaces.orphan_dict(record) for record in found]

    async def recover_namespace(self, namespace_id: str, principal: str | None = None) -> str:
        """Make a deleted namespace active again, and return its name."""
        scope = self.scope
        flow = namespaces.recover(scope.store, scope.io, namespace_id, principal)
        return await drive(scope.in_time(flow))

    async def purge_namespace(self, namespace_id: str, principal: str | None = None) -> None:
        """Delete all data of a deleted namespace, for good."""
        await drive(namespaces.purge(self.scope.store, self.scope.io, namespace_id, principal))

    async def set_system_defaults(
        self,
        limits: list[Limit],
        on_unavailable: OnUnavailableAction | None = None,
        principal: str | None = None,
    ) -> None:
        """Set the limits for entities and resources that have none; an `on_unavailable` of None
        keeps the stored one."""
        await drive(
            stored_limits.set_system_defaults(self.scope, limits, on_unavailable, principal)
        )

    async def get_system_defaults(self) -> tuple[list[Limit], OnUnavailableAction | None]:
        """Return the system's limits and its `on_unavailable`."""
        return await drive(stored_limits.system_defaults(self.scope))

    async def get_system_limits(self) -> list[Limit]:
        """Return the system's limits; empty when there are none."""
        return await drive(stored_limits.get_limits(self.scope, SYSTEM_SLOT))

    async def resolve_limits(self, entity_id: str, resource: str) -> stored_limits.ResolvedLimits:
        """Return the limits in force, the system's `on_unavailable`, and the level that set the
        limits."""
        return await drive(stored_limits.resolve_limits(self.scope, entity_id, resource))

    async def resolve_on_unavailable(self) -> OnUnavailableAction:
        """Return the effect of an unavailable store on a call: `allow` or `block`. Never raises."""
        return await drive(stored_limits.on_unavailable_or_block(self.scope))

    async def get_bucket(
        self, entity_id: str, resource: str, limit_name: str, shard_id: int = 0
    ) -> BucketState | None:
        """Return the stored state of one limit of one bucket or, where the bucket is split, of one
        shard."""
        return await drive(
            capacity.get_bucket(self.scope, entity_id, resource, limit_name, shard_id)
        )

    async def get_balances(
        self, entity_id: str | None = None, resource: str | None = None
    ) -> list[BucketBalance]:
        """Return the balances as of now of all buckets of an entity, of a resource, or of both.

        A bucket that cannot be read is left out, and a `StoredDataWarning` names it.
        """
        return await drive(balances.get_balances(self.scope, entity_id, resource))

    async def get_buckets(
        self, entity_id: str, resource: str | None = None, shard_id: int | None = None
    ) -> list[BucketState]:
        """Return the stored state of an entity's buckets, of all of their shards or of one.

        A bucket that cannot be read is left out of a list, and a `StoredDataWarning` names it. If
        `resource` names that bucket, `StoredDataError` is raised.
        """
        return await drive(capacity.get_buckets(self.scope, entity_id, resource, shard_id))

    async def get_resource_buckets(
        self, resource: str, limit_name: str | None = None
    ) -> list[BucketState]:
        """Return the stored state of a resource's buckets over all entities.

        A bucket that cannot be read is left out, and a `StoredDataWarning` names it.
        """
        return await drive(capacity.get_resource_buckets(self.scope, resource, limit_name))

    async def ping(self) -> bool:
        """Return whether the store answers."""
        return await drive(deployment.can_ping(self.scope, self.scope.settings.patience_s))

    async def create_table(self) -> None:
        """Create the table if there is none, as opening with `create=True` does. Namespaces have to
        be registered in a new table. Stores without a table were created when they were opened."""
        await drive(deployment.create_table(self.scope))

    async def delete_table(self) -> None:
        """Delete everything that is stored, of all namespaces, and the table itself where there is
        one."""
        await drive(deployment.delete_table(self.scope))

    async def ensure_infrastructure(self) -> None:
        """Deploy the stack, if the repository was made with stack options. Deprecated: the steps of
        `builder()` replace it."""
        warn_ensure()
        await self._provide()

    async def _provide(self) -> None:
        deployment = self._stack_deployment()
        if deployment is not None:
            await asyncio.to_thread(deployment)

    async def get_version_record(self) -> dict[str, Any] | None:
        """Return the versions of the table's parts; None where no client has written them, and for
        stores without a table."""
        return await drive(deployment.get_version_record(self.scope))

    async def set_version_record(
        self,
        schema_version: str,
        lambda_version: str | None = None,
        client_min_version: str | None = None,
        updated_by: str | None = None,
    ) -> None:
        """Replace the table's version record. Without `client_min_version` the table lets every
        client in. Stores without a table raise `InfrastructureError`."""
        await drive(
            deployment.set_version_record(
                self.scope, schema_version, lambda_version, client_min_version, updated_by
            )
        )


class RepositoryBuilder(BuilderSteps):
    """A builder opens a `Repository`: `await
    Repository.builder().stack("s").region("r").build()`."""

    async def build(self) -> Repository:
        """Deploy the stack, if a step asks for that, open the store, register `default`, and open
        the namespace that was chosen."""
        deployment = self._deployment()
        if deployment is not None:
            await asyncio.to_thread(deployment)
        first = await Repository.open(DEFAULT_NAMESPACE, **self._choices.arguments)
        try:
            chosen = await first.namespace(
                self._choices.namespace, on_unavailable=self._choices.on_unavailable
            )
        except BaseException:
            await first.close()
            raise
        return Repository.on_scope(chosen.scope, chosen.namespace_name, owns_store=True)
