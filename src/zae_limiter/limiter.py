"""This module is the asynchronous rate limiter."""

from __future__ import annotations

import asyncio
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
from .lease import Acquisition, Lease
from .limiter_base import LimiterBase, OnError, check_repository
from .records import Records
from .repository import Repository
from .runtime.asyncio_driver import drive, in_time
from .unopened import StackOfLimiter, repository_options, warn_unnamed


class RateLimiter(Records, LimiterBase):
    """A rate limiter charges the token buckets of entities for what they do with resources.

    limiter = RateLimiter(repository=repository)
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
        ...
        await lease.adjust(tpm=actual - 500)
    """

    _lease_type = Lease

    def __init__(
        self,
        repository: Repository | None = None,
        *,
        default_limits: Sequence[Limit] | None = None,
        on_unavailable: OnUnavailable | None = None,
        speculative_writes: bool = True,
        **stack: Unpack[StackOfLimiter],
    ) -> None:
        if repository is None:
            warn_unnamed(type(self).__name__, stack)
            repository = Repository(**repository_options(stack))
        elif stack:
            raise ValueError(f"give repository or {', '.join(sorted(stack))}, not both")
        check_repository(repository, Repository)
        super().__init__(repository.scope, default_limits, on_unavailable, speculative_writes)
        self.repository = repository

    async def __aenter__(self) -> Self:
        await self.repository.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @classmethod
    async def list_deployed(
        cls, region: str | None = None, endpoint_url: str | None = None
    ) -> list[LimiterInfo]:
        """Return the limiters that are deployed in an AWS region, by name."""
        return await asyncio.to_thread(find_deployed, region, endpoint_url)

    async def close(self) -> None:
        """Close the repository."""
        await self.repository.close()

    async def is_available(self, timeout: float = 1.0) -> bool:
        """Return whether the store answers within `timeout` seconds. Never raises."""
        return await in_time(deployment.can_ping(self.scope, timeout), timeout)

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
    ) -> Acquisition:
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
            Acquisition,
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

    async def reserve(
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
    ) -> Lease:
        """Charge as `acquire` does, and return a lease that lives until its holder ends it with
        `commit` or `release`, here or, with `lease_ttl`, in another process that is given
        `lease.token()`. One that is never ended stays charged."""
        acquisition = self._acquisition(
            Acquisition,
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
        return await acquisition.reserve()

    async def available(
        self,
        entity_id: str,
        resource: str,
        limits: list[Limit] | None = None,
        use_stored_limits: bool = False,
    ) -> dict[str, int]:
        """Return the tokens of each limit that could be taken now, ancestors included."""
        request = self._request(entity_id, resource, {}, limits, use_stored_limits)
        return await drive(capacity.available(self.scope, request))

    async def time_until_available(
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
        return await drive(capacity.time_until_available(self.scope, request))

    async def get_resource_capacity(
        self, resource: str, limit_name: str, parents_only: bool = False
    ) -> ResourceCapacity:
        """Add up one limit of a resource over all entities that have a bucket.

        A bucket that cannot be read is left out, and a `StoredDataWarning` names it.
        """
        return await drive(
            capacity.get_resource_capacity(self.scope, resource, limit_name, parents_only)
        )

    async def set_system_defaults(
        self,
        limits: list[Limit],
        on_unavailable: OnUnavailable | None = None,
        principal: str | None = None,
    ) -> None:
        """Set the limits for entities and resources that have none; an `on_unavailable` of None
        keeps the stored one."""
        await drive(
            stored_limits.set_system_defaults(self.scope, limits, on_unavailable, principal)
        )

    async def get_system_defaults(self) -> tuple[list[Limit], OnUnavailable | None]:
        """Return the system's limits and its `on_unavailable`."""
        return await drive(stored_limits.system_defaults_enum(self.scope))
