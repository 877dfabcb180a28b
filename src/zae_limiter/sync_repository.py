"""This module is the blocking repository."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self, Unpack

from .builder import BuilderSteps
from .core.hierarchy import SYSTEM_SLOT
from .core.limit import BucketState, Limit
from .core.models import BucketBalance, OnUnavailableAction
from .flows.admin import balances, capacity, deployment, namespaces
from .flows.admin import limits as stored_limits
from .flows.admin.namespaces import register_all
from .flows.scope import DEFAULT_TTL_MULTIPLIER
from .infra.options import StackOptions
from .naming import DEFAULT_NAMESPACE
from .opening import (
    ConnectOptions,
    Opening,
    OpenOptions,
    check_opening,
    close_store,
    open_scope,
)
from .ports.io import Io
from .repository_base import RepositoryBase
from .runtime.blocking import BlockingIo, run
from .runtime.parallel import choose_gather
from .sync_records import SyncRecords
from .unopened import name_stack, unopened_scope, warn_ensure, warn_unopened


def _blocking_io(opening: Opening, parallel_mode: str) -> Io:
    parallel_helps = not opening.store.is_embedded
    return BlockingIo(opening.clock, choose_gather(parallel_mode, parallel_helps=parallel_helps))


class SyncRepository(SyncRecords, RepositoryBase):
    """A blocking repository is a `Repository` without await. Threads may share it."""

    def __init__(
        self,
        name: str,
        region: str | None = None,
        endpoint_url: str | None = None,
        stack_options: StackOptions | None = None,
        config_cache_ttl: float = 60,
        parallel_mode: str = "auto",
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
        io = _blocking_io(opening, parallel_mode)
        self._settle(unopened_scope(opening, io, blocking=True), opening.namespace, owns_store=True)
        self._stack_options = stack_options

    @classmethod
    def open(
        cls,
        namespace: str | None = None,
        parallel_mode: str = "auto",
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
        io = _blocking_io(opening, parallel_mode)
        scope, name = run(open_scope(opening, io, blocking=True, create=True))
        return cls.on_scope(scope, name, owns_store=True)

    @classmethod
    def connect(
        cls,
        namespace: str | None = None,
        parallel_mode: str = "auto",
        **options: Unpack[ConnectOptions],
    ) -> Self:
        """Open a store and namespace that exist; nothing is ever created. The options are those of
        `open`."""
        opening = check_opening(namespace, options, ConnectOptions)
        io = _blocking_io(opening, parallel_mode)
        scope, name = run(open_scope(opening, io, blocking=True, create=False))
        return cls.on_scope(scope, name, owns_store=True)

    @classmethod
    def builder(cls) -> SyncRepositoryBuilder:
        """Return a builder, which opens a repository step by step; the namespace must be
        registered."""
        return SyncRepositoryBuilder()

    def __enter__(self) -> Self:
        self._provide()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the store. A repository made by `namespace()` leaves the store open for its
        origin."""
        if self._owns_store:
            run(close_store(self.scope.store, self.scope.io))

    def namespace(
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
        record = run(namespaces.find(self.scope.store, name))
        scope = self._scope_of(record, multiplier)
        if on_unavailable is not None:
            run(stored_limits.set_on_unavailable(scope, on_unavailable))
        return type(self).on_scope(scope, record.name, owns_store=False)

    def register_namespace(self, namespace: str, principal: str | None = None) -> str:
        """Register a name, or find it registered, and return its id."""
        scope = self.scope
        flow = namespaces.register(scope.store, scope.io, namespace, principal)
        return (run(scope.in_time(flow))).namespace_id

    def register_namespaces(
        self, namespaces: list[str], principal: str | None = None
    ) -> dict[str, str]:
        """Register several names and return their ids."""
        return run(register_all(self.scope.store, self.scope.io, namespaces, principal))

    def get_namespace(self, namespace: str) -> dict[str, str] | None:
        """Return the active namespace of this name."""
        record = run(namespaces.look_up(self.scope.store, namespace))
        return None if record is None else namespaces.namespace_dict(record)

    def list_namespaces(self) -> list[dict[str, str]]:
        """List all active namespaces."""
        found = run(self.scope.store.namespaces.active())
        return [namespaces.listed_namespace_dict(record) for record in found]

    def delete_namespace(self, namespace: str, principal: str | None = None) -> None:
        """Free the name; the data stays until the namespace is purged or recovered."""
        run(namespaces.delete(self.scope.store, self.scope.io, namespace, principal))

    def list_orphan_namespaces(self) -> list[dict[str, str]]:
        """List the deleted namespaces whose data still exists."""
        found = run(self.scope.store.namespaces.orphans())
        return [namespaces.orphan_dict(record) for record in found]

    def recover_namespace(self, namespace_id: str, principal: str | None = None) -> str:
        """Make a deleted namespace active again, and return its name."""
        scope = self.scope
        flow = namespaces.recover(scope.store, scope.io, namespace_id, principal)
        return run(scope.in_time(flow))

    def purge_namespace(self, namespace_id: str, principal: str | None = None) -> None:
        """Delete all data of a deleted namespace, for good."""
        run(namespaces.purge(self.scope.store, self.scope.io, namespace_id, principal))

    def set_system_defaults(
        self,
        limits: list[Limit],
        on_unavailable: OnUnavailableAction | None = None,
        principal: str | None = None,
    ) -> None:
        """Set the limits for entities and resources that have none; an `on_unavailable` of None
        keeps the stored one."""
        run(stored_limits.set_system_defaults(self.scope, limits, on_unavailable, principal))

    def get_system_defaults(self) -> tuple[list[Limit], OnUnavailableAction | None]:
        """Return the system's limits and its `on_unavailable`."""
        return run(stored_limits.system_defaults(self.scope))

    def get_system_limits(self) -> list[Limit]:
        """Return the system's limits; empty when there are none."""
        return run(stored_limits.get_limits(self.scope, SYSTEM_SLOT))

    def resolve_limits(self, entity_id: str, resource: str) -> stored_limits.ResolvedLimits:
        """Return the limits in force, the system's `on_unavailable`, and the level that set the
        limits."""
        return run(stored_limits.resolve_limits(self.scope, entity_id, resource))

    def resolve_on_unavailable(self) -> OnUnavailableAction:
        """Return the effect of an unavailable store on a call: `allow` or `block`. Never raises."""
        return run(stored_limits.on_unavailable_or_block(self.scope))

    def get_bucket(
        self, entity_id: str, resource: str, limit_name: str, shard_id: int = 0
    ) -> BucketState | None:
        """Return the stored state of one limit of one bucket or, where the bucket is split, of one
        shard."""
        return run(capacity.get_bucket(self.scope, entity_id, resource, limit_name, shard_id))

    def get_balances(
        self, entity_id: str | None = None, resource: str | None = None
    ) -> list[BucketBalance]:
        """Return the balances as of now of all buckets of an entity, of a resource, or of both.

        A bucket that cannot be read is left out, and a `StoredDataWarning` names it.
        """
        return run(balances.get_balances(self.scope, entity_id, resource))

    def get_buckets(
        self, entity_id: str, resource: str | None = None, shard_id: int | None = None
    ) -> list[BucketState]:
        """Return the stored state of an entity's buckets, of all of their shards or of one.

        A bucket that cannot be read is left out of a list, and a `StoredDataWarning` names it. If
        `resource` names that bucket, `StoredDataError` is raised.
        """
        return run(capacity.get_buckets(self.scope, entity_id, resource, shard_id))

    def get_resource_buckets(
        self, resource: str, limit_name: str | None = None
    ) -> list[BucketState]:
        """Return the stored state of a resource's buckets over all entities.

        A bucket that cannot be read is left out, and a `StoredDataWarning` names it.
        """
        return run(capacity.get_resource_buckets(self.scope, resource, limit_name))

    def ping(self) -> bool:
        """Return whether the store answers."""
        return run(deployment.can_ping(self.scope, self.scope.settings.patience_s))

    def create_table(self) -> None:
        """Create the table if there is none, as opening with `create=True` does. Namespaces have to
        be registered in a new table. Stores without a table were created when they were opened."""
        run(deployment.create_table(self.scope))

    def delete_table(self) -> None:
        """Delete everything that is stored, of all namespaces, and the table itself where there is
        one."""
        run(deployment.delete_table(self.scope))

    def ensure_infrastructure(self) -> None:
        """Deploy the stack, if the repository was made with stack options. Deprecated: the steps of
        `builder()` replace it."""
        warn_ensure()
        self._provide()

    def _provide(self) -> None:
        deployment = self._stack_deployment()
        if deployment is not None:
            deployment()

    def get_version_record(self) -> dict[str, Any] | None:
        """Return the versions of the table's parts; None where no client has written them, and for
        stores without a table."""
        return run(deployment.get_version_record(self.scope))

    def set_version_record(
        self,
        schema_version: str,
        lambda_version: str | None = None,
        client_min_version: str | None = None,
        updated_by: str | None = None,
    ) -> None:
        """Replace the table's version record. Without `client_min_version` the table lets every
        client in. Stores without a table raise `InfrastructureError`."""
        run(
            deployment.set_version_record(
                self.scope, schema_version, lambda_version, client_min_version, updated_by
            )
        )


class SyncRepositoryBuilder(BuilderSteps):
    """A builder opens a `SyncRepository`: `RepositoryBuilder` without await."""

    def parallel_mode(self, value: str) -> Self:
        """Choose how several calls run: `auto`, `threadpool`, `gevent` or `serial`."""
        return self._with(parallel_mode=value)

    def build(self) -> SyncRepository:
        """Deploy the stack, if a step asks for that, open the store, register `default`, and open
        the namespace that was chosen."""
        deployment = self._deployment()
        if deployment is not None:
            deployment()
        first = SyncRepository.open(DEFAULT_NAMESPACE, **self._choices.arguments)
        try:
            chosen = first.namespace(
                self._choices.namespace, on_unavailable=self._choices.on_unavailable
            )
        except BaseException:
            first.close()
            raise
        return SyncRepository.on_scope(chosen.scope, chosen.namespace_name, owns_store=True)
