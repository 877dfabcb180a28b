"""This module is the blocking rate limiter."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self, Unpack

from .core.deployed import LimiterInfo
from .core.limit import Limit
from .core.models import (
    OnUnavailable,
    ResourceCapacity,
)
from .deployed import find_deployed
from .flows.admin import capacity, deployment
from .flows.admin import limits as stored_limits
from .lease import SyncAcquisition, SyncLease
from .limiter_base import LimiterBase, OnError, check_repository
from .runtime.blocking import run
from .sync_records import SyncRecords
from .sync_repository import SyncRepository
from .unopened import StackOfLimiter, repository_options, warn_unnamed


class SyncRateLimiter(SyncRecords, LimiterBase):
    """A blocking rate limiter is a `RateLimiter` without await. Threads may share it."""

    _lease_type = SyncLease

    def __init__(
        self,
        repository: SyncRepository | None = None,
        *,
        default_limits: Sequence[Limit] | None = None,
        on_unavailable: OnUnavailable | None = None,
        speculative_writes: bool = True,
        **stack: Unpack[StackOfLimiter],
    ) -> None:
        if repository is None:
            warn_unnamed(type(self).__name__, stack)
            repository = SyncRepository(**repository_options(stack))
        elif stack:
            raise ValueError(f"give repository or {', '.join(sorted(stack))}, not both")
        check_repository(repository, SyncRepository)
        super().__init__(repository.scope, default_limits, on_unavailable, speculative_writes)
        self.repository = repository

    def __enter__(self) -> Self:
        self.repository.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @classmethod
    def list_deployed(
        cls, region: str | None = None, endpoint_url: str | None = None
    ) -> list[LimiterInfo]:
        """Return the limiters that are deployed in an AWS region, by name."""
        return find_deployed(region, endpoint_url)

    def close(self) -> None:
        """Close the repository."""
        self.repository.close()

    def is_available(self, timeout: float = 1.0) -> bool:
        """Return whether the store answers within `timeout` seconds. Never raises."""
        return run(deployment.can_ping(self.scope, timeout))

    def acquire(
        self,
        entity_id: str,
        resource: str,
        consume: dict[str, int],
        limits: list[Limit] | None = None,
        use_stored_limits: bool = False,
        on_unavailable: OnUnavailable | None = None,
        *,
        timeout: float | None = None,
        on_error: OnError = "refund",
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
        lease_ttl: float | None = None,
    ) -> SyncAcquisition:
        """Charge the amounts in `consume` to the entity's bucket and, where it cascades, to the
        buckets of its ancestors: all of them or, with `RateLimitExceeded`, none.

        When the block ends, the corrections of `lease.adjust` are written. If the block raises, or
        is cancelled, everything is given back. `limits` replaces the stored limits for this call.
        With `on_error="keep"` a block that raises keeps its charge, corrections included.
        With `timeout` the call waits for tokens, first come first served; a request that cannot fit
        in time is refused at once.

        With `idempotency_key` a charge is made once for the key, across processes and restarts, for
        `idempotency_ttl` seconds (a day by default); `lease.is_repeat` tells that it had been made
        before. With `lease_ttl` the lease can be ended by another process, through `lease.token()`,
        for so many seconds. Both keep a record in the store.
        """
        return self._acquisition(
            SyncAcquisition,
            entity_id,
            resource,
            consume,
            limits,
            use_stored_limits,
            on_unavailable,
            timeout,
            on_error,
            idempotency_key,
            idempotency_ttl,
            lease_ttl,
        )

    def reserve(
        self,
        entity_id: str,
        resource: str,
        consume: dict[str, int],
        limits: list[Limit] | None = None,
        on_unavailable: OnUnavailable | None = None,
        *,
        timeout: float | None = None,
        on_error: OnError = "refund",
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
        lease_ttl: float | None = None,
    ) -> SyncLease:
        """Charge as `acquire` does, and return a lease that lives until its holder ends it with
        `commit` or `release`, here or, with `lease_ttl`, in another process that is given
        `lease.token()`. One that is never ended stays charged."""
        acquisition = self._acquisition(
            SyncAcquisition,
            entity_id,
            resource,
            consume,
            limits,
            False,
            on_unavailable,
            timeout,
            on_error,
            idempotency_key,
            idempotency_ttl,
            lease_ttl,
        )
        return acquisition.reserve()

    def available(
        self,
        entity_id: str,
        resource: str,
        limits: list[Limit] | None = None,
        use_stored_limits: bool = False,
    ) -> dict[str, int]:
        """Return the tokens of each limit that could be taken now, ancestors included."""
        request = self._request(entity_id, resource, {}, limits, use_stored_limits)
        return run(capacity.available(self.scope, request))

    def time_until_available(
        self,
        entity_id: str,
        resource: str,
        needed: dict[str, int],
        limits: list[Limit] | None = None,
        use_stored_limits: bool = False,
    ) -> float:
        """Return the seconds until the amounts in `needed` would fit, ancestors included; infinite
        when they never will."""
        request = self._request(entity_id, resource, needed, limits, use_stored_limits, "needed")
        return run(capacity.time_until_available(self.scope, request))

    def get_resource_capacity(
        self, resource: str, limit_name: str, parents_only: bool = False
    ) -> ResourceCapacity:
        """Add up one limit of a resource over all entities that have a bucket.

        A bucket that cannot be read is left out, and a `StoredDataWarning` names it.
        """
        return run(capacity.get_resource_capacity(self.scope, resource, limit_name, parents_only))

    def set_system_defaults(
        self,
        limits: list[Limit],
        on_unavailable: OnUnavailable | None = None,
        principal: str | None = None,
    ) -> None:
        """Set the limits for entities and resources that have none; an `on_unavailable` of None
        keeps the stored one."""
        run(stored_limits.set_system_defaults(self.scope, limits, on_unavailable, principal))

    def get_system_defaults(self) -> tuple[list[Limit], OnUnavailable | None]:
        """Return the system's limits and its `on_unavailable`."""
        return run(stored_limits.system_defaults_enum(self.scope))
