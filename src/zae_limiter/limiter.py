"""The rate limiter."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from .core.audit import AuditEvent
from .core.hierarchy import SYSTEM_SLOT
from .core.limit import Limit, validate_limits
from .core.models import (
    Entity,
    LimiterConfig,
    OnUnavailable,
    ResourceCapacity,
    UsageSnapshot,
    UsageSummary,
)
from .core.naming import DEFAULT_RESOURCE
from .flows import audit, capacity, configure, describe, entities, usage
from .lease import Acquisition
from .limiter_base import LimiterBase
from .repository import Repository
from .runtime.asyncio_driver import drive, in_time


class RateLimiter(LimiterBase):
    """Token-bucket limits on everything that an entity does with a resource.

    limiter = RateLimiter(repository=repository)
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
        ...
        await lease.adjust(tpm=actual - 500)
    """

    def __init__(
        self,
        repository: Repository,
        *,
        default_limits: Sequence[Limit] | None = None,
        on_unavailable: OnUnavailable | None = None,
        speculative_writes: bool = True,
    ) -> None:
        super().__init__(repository.scope, default_limits, on_unavailable, speculative_writes)
        self.repository = repository

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the repository."""
        await self.repository.close()

    async def is_available(self, timeout: float = 1.0) -> bool:
        """Whether the store answers in time. Never raises."""
        return await in_time(describe.can_ping(self._scope), timeout)

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
    ) -> Acquisition:
        """Take what `consume` says from the entity's bucket and, where it cascades, from its
        ancestors': all of it or, with `RateLimitExceeded`, none.

        The block's end writes what `lease.adjust` corrected. If the block raises, or is
        cancelled, everything is given back. `limits` replaces the stored limits for this
        call. With `timeout` it waits for tokens, first come first served, and raises at once
        what cannot fit in time.
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
        )

    async def available(
        self,
        entity_id: str,
        resource: str,
        limits: list[Limit] | None = None,
        use_stored_limits: bool = False,
    ) -> dict[str, int]:
        """How much of each limit could be taken now, ancestors included."""
        request = self._request(entity_id, resource, {}, limits, use_stored_limits)
        return await drive(capacity.available(self._scope, request))

    async def time_until_available(
        self,
        entity_id: str,
        resource: str,
        needed: dict[str, int],
        limits: list[Limit] | None = None,
        use_stored_limits: bool = False,
    ) -> float:
        """Seconds until this would fit, ancestors included; infinite when it never will."""
        request = self._request(entity_id, resource, needed, limits, use_stored_limits, "needed")
        return await drive(capacity.time_until_available(self._scope, request))

    async def get_resource_capacity(
        self, resource: str, limit_name: str, parents_only: bool = False
    ) -> ResourceCapacity:
        """One limit of a resource over all entities that have a bucket."""
        return await drive(
            capacity.get_resource_capacity(self._scope, resource, limit_name, parents_only)
        )

    async def invalidate_config_cache(
        self, entity_id: str | None = None, resource: str | None = None
    ) -> None:
        """Forget what is remembered of an entity, a resource, or everything."""
        self._scope.cache.invalidate(entity_id, resource)

    async def create_entity(
        self,
        entity_id: str,
        name: str | None = None,
        parent_id: str | None = None,
        cascade: bool = False,
        metadata: dict[str, str] | None = None,
        principal: str | None = None,
    ) -> Entity:
        """Store a new entity. With `cascade` its acquires are charged to its parent too."""
        return await drive(
            entities.create_entity(
                self._scope,
                entities.new_entity(entity_id, name, parent_id, cascade, metadata),
                principal,
            )
        )

    async def get_entity(self, entity_id: str) -> Entity | None:
        """The entity, if there is one."""
        return await drive(entities.get_entity(self._scope, entity_id))

    async def update_entity(
        self,
        entity_id: str,
        *,
        name: str | None = None,
        metadata: dict[str, str] | None = None,
        expected_version: int | None = None,
        principal: str | None = None,
    ) -> Entity:
        """Change name or metadata; `EntityVersionError` when it is not at the expected version."""
        return await drive(
            entities.update_entity(
                self._scope, entity_id, name, metadata, expected_version, principal
            )
        )

    async def delete_entity(self, entity_id: str, principal: str | None = None) -> None:
        """Delete the entity with its limits, buckets and usage. Its audit events stay."""
        await drive(entities.delete_entity(self._scope, entity_id, principal))

    async def get_children(self, parent_id: str) -> list[Entity]:
        """Entities whose parent this is."""
        return await drive(entities.get_children(self._scope, parent_id))

    async def set_limits(
        self,
        entity_id: str,
        limits: list[Limit],
        resource: str = DEFAULT_RESOURCE,
        principal: str | None = None,
    ) -> None:
        """Give an entity limits of its own for a resource, or for all resources."""
        await drive(
            configure.set_limits(
                self._scope, configure.entity_slot(entity_id, resource), limits, principal
            )
        )

    async def get_limits(self, entity_id: str, resource: str = DEFAULT_RESOURCE) -> list[Limit]:
        """The entity's own limits for a resource; empty when it has none."""
        return await drive(
            configure.get_limits(self._scope, configure.entity_slot(entity_id, resource))
        )

    async def delete_limits(
        self, entity_id: str, resource: str = DEFAULT_RESOURCE, principal: str | None = None
    ) -> None:
        """Take the entity's own limits for a resource away: the next level decides again."""
        await drive(
            configure.delete_config(
                self._scope, configure.entity_slot(entity_id, resource), principal
            )
        )

    async def list_entities_with_custom_limits(
        self, resource: str, limit: int | None = None, cursor: str | None = None
    ) -> tuple[list[str], str | None]:
        """One page of entities with limits of their own for a resource, and the next cursor."""
        return await drive(
            configure.list_entities_with_custom_limits(self._scope, resource, limit, cursor)
        )

    async def list_resources_with_entity_configs(self) -> list[str]:
        """Resources for which some entity has limits of its own."""
        return await drive(
            self._scope.store.configs.resources_with_entity_limits(self._scope.namespace_id)
        )

    async def set_resource_defaults(
        self, resource: str, limits: list[Limit], principal: str | None = None
    ) -> None:
        """Set the limits of a resource for entities that have none of their own."""
        await drive(
            configure.set_limits(self._scope, configure.resource_slot(resource), limits, principal)
        )

    async def get_resource_defaults(self, resource: str) -> list[Limit]:
        """The limits of a resource; empty when it has none."""
        return await drive(configure.get_limits(self._scope, configure.resource_slot(resource)))

    async def delete_resource_defaults(self, resource: str, principal: str | None = None) -> None:
        """Take the limits of a resource away: the system's decide again."""
        await drive(
            configure.delete_config(self._scope, configure.resource_slot(resource), principal)
        )

    async def list_resources_with_defaults(self) -> list[str]:
        """Resources that have limits."""
        return await drive(
            self._scope.store.configs.resources_with_defaults(self._scope.namespace_id)
        )

    async def set_system_defaults(
        self,
        limits: list[Limit],
        on_unavailable: OnUnavailable | None = None,
        principal: str | None = None,
    ) -> None:
        """Set the limits for everything that has none; what is not named stays as it is."""
        await drive(
            configure.set_config(
                self._scope,
                SYSTEM_SLOT,
                LimiterConfig(
                    validate_limits(limits), describe.on_unavailable_action(on_unavailable)
                ),
                principal,
            )
        )

    async def get_system_defaults(self) -> tuple[list[Limit], OnUnavailable | None]:
        """The system's limits, and what it says of outages."""
        return await drive(describe.system_defaults_enum(self._scope))

    async def delete_system_defaults(self, principal: str | None = None) -> None:
        """Take the system's limits and behaviour away."""
        await drive(configure.delete_config(self._scope, SYSTEM_SLOT, principal))

    async def get_config(
        self, level: str, identifier: str | None = None, resource: str | None = None
    ) -> LimiterConfig | None:
        """What is stored at one level (system, resource or entity); None when nothing is."""
        return await drive(
            configure.get_config(self._scope, configure.slot_for(level, identifier, resource))
        )

    async def set_config(
        self,
        level: str,
        config: LimiterConfig,
        identifier: str | None = None,
        resource: str | None = None,
        principal: str | None = None,
    ) -> None:
        """Set the fields of one level that are given and keep the others."""
        await drive(
            configure.set_config(
                self._scope, configure.slot_for(level, identifier, resource), config, principal
            )
        )

    async def get_audit_events(
        self, entity_id: str, limit: int = 100, start_event_id: str | None = None
    ) -> list[AuditEvent]:
        """Changes of an entity, or of `$SYSTEM` or `$RESOURCE:name`, newest first."""
        return await drive(audit.get_audit_events(self._scope, entity_id, limit, start_event_id))

    async def get_usage_snapshots(
        self,
        entity_id: str | None = None,
        resource: str | None = None,
        window_type: str | None = None,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        limit: int = 100,
        next_key: dict[str, Any] | None = None,
    ) -> tuple[list[UsageSnapshot], dict[str, Any] | None]:
        """Usage by window, newest first, one page, and the key of the next."""
        return await drive(
            usage.get_usage_snapshots(
                self._scope,
                usage.make_query(
                    entity_id,
                    resource,
                    window_type,
                    describe.time_text("start_time", start_time),
                    describe.time_text("end_time", end_time),
                ),
                limit,
                next_key,
            )
        )

    async def get_usage_summary(
        self,
        entity_id: str | None = None,
        resource: str | None = None,
        window_type: str | None = None,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
    ) -> UsageSummary:
        """Usage snapshots added up."""
        return await drive(
            usage.get_usage_summary(
                self._scope,
                usage.make_query(
                    entity_id,
                    resource,
                    window_type,
                    describe.time_text("start_time", start_time),
                    describe.time_text("end_time", end_time),
                ),
            )
        )
