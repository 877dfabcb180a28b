"""This module is the part of the blocking facades that the limiter and the repository share."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from .core.audit import AuditEvent
from .core.hierarchy import SYSTEM_SLOT
from .core.limit import Limit
from .core.models import Entity, LimiterConfig, UsageSnapshot, UsageSummary
from .core.validation import DEFAULT_RESOURCE
from .flows.admin import audit, entities, usage
from .flows.admin import limits as stored_limits
from .flows.scope import Scope
from .runtime.blocking import run


class SyncRecords:
    """Blocking records are `Records` without await."""

    scope: Scope

    def create_entity(
        self,
        entity_id: str,
        name: str | None = None,
        parent_id: str | None = None,
        cascade: bool = False,
        metadata: dict[str, Any] | None = None,
        principal: str | None = None,
        *,
        exist_ok: bool = False,
    ) -> Entity:
        """Store a new entity. With `cascade` its acquires are charged to its parent too.

        With `exist_ok` an entity of this id, parent and cascade is returned as it is stored.
        """
        return run(
            entities.create_entity(
                self.scope,
                entities.new_entity(entity_id, name, parent_id, cascade, metadata),
                principal,
                exist_ok,
            )
        )

    def get_entity(self, entity_id: str) -> Entity | None:
        """Return the entity, if there is one."""
        return run(entities.get_entity(self.scope, entity_id))

    def update_entity(
        self,
        entity_id: str,
        *,
        name: str | None = None,
        metadata: dict[str, Any] | None = None,
        expected_version: int | None = None,
        principal: str | None = None,
    ) -> Entity:
        """Change an entity's name or metadata; raise `EntityVersionError` if another client has
        changed the entity since `expected_version`."""
        return run(
            entities.update_entity(
                self.scope, entity_id, name, metadata, expected_version, principal
            )
        )

    def delete_entity(self, entity_id: str, principal: str | None = None) -> None:
        """Delete the entity with its limits, buckets and usage. Its audit events stay."""
        run(entities.delete_entity(self.scope, entity_id, principal))

    def get_children(self, parent_id: str) -> list[Entity]:
        """List the entities that have this parent."""
        return run(entities.get_children(self.scope, parent_id))

    def list_entities(
        self,
        prefix: str = "",
        parent_id: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> tuple[list[Entity], str | None]:
        """Return one page of the entities that were created, sorted by id, and the next cursor.
        `prefix` and `parent_id` narrow the list."""
        return run(entities.list_entities(self.scope, prefix, parent_id, limit, cursor))

    def set_limits(
        self,
        entity_id: str,
        limits: list[Limit],
        resource: str = DEFAULT_RESOURCE,
        principal: str | None = None,
        *,
        inherit: bool = False,
    ) -> None:
        """Give an entity limits of its own for a resource, or for all resources. They replace those
        of the next level; with `inherit` they are merged with them by name. An empty list deletes
        them, as `delete_limits` does."""
        run(
            stored_limits.set_limits(
                self.scope,
                stored_limits.entity_slot(entity_id, resource),
                limits,
                principal,
                inherit=inherit,
            )
        )

    def get_limits(self, entity_id: str, resource: str = DEFAULT_RESOURCE) -> list[Limit]:
        """Return the entity's own limits for a resource; empty when it has none."""
        return run(
            stored_limits.get_limits(self.scope, stored_limits.entity_slot(entity_id, resource))
        )

    def delete_limits(
        self, entity_id: str, resource: str = DEFAULT_RESOURCE, principal: str | None = None
    ) -> None:
        """Delete the entity's own limits for a resource: the next level decides again."""
        run(
            stored_limits.delete_config(
                self.scope, stored_limits.entity_slot(entity_id, resource), principal
            )
        )

    def list_entities_with_custom_limits(
        self, resource: str, limit: int | None = None, cursor: str | None = None
    ) -> tuple[list[str], str | None]:
        """Return one page of entities with limits of their own for a resource, and the next
        cursor."""
        return run(
            stored_limits.list_entities_with_custom_limits(self.scope, resource, limit, cursor)
        )

    def list_resources_with_entity_configs(self) -> list[str]:
        """List the resources for which some entity has limits of its own."""
        return run(self.scope.store.configs.resources_with_entity_limits(self.scope.namespace_id))

    def set_resource_defaults(
        self,
        resource: str,
        limits: list[Limit],
        principal: str | None = None,
        *,
        inherit: bool = False,
    ) -> None:
        """Set the limits of a resource for entities that have none of their own. With `inherit`
        they are merged by name with the system's."""
        run(
            stored_limits.set_limits(
                self.scope,
                stored_limits.resource_slot(resource),
                limits,
                principal,
                inherit=inherit,
            )
        )

    def get_resource_defaults(self, resource: str) -> list[Limit]:
        """Return the limits of a resource; empty when it has none."""
        return run(stored_limits.get_limits(self.scope, stored_limits.resource_slot(resource)))

    def delete_resource_defaults(self, resource: str, principal: str | None = None) -> None:
        """Delete the limits of a resource: the system's limits decide again."""
        run(
            stored_limits.delete_config(
                self.scope, stored_limits.resource_slot(resource), principal
            )
        )

    def list_resources_with_defaults(self) -> list[str]:
        """List the resources that have limits."""
        return run(self.scope.store.configs.resources_with_defaults(self.scope.namespace_id))

    def delete_system_defaults(self, principal: str | None = None) -> None:
        """Delete the system's limits and its `on_unavailable`."""
        run(stored_limits.delete_config(self.scope, SYSTEM_SLOT, principal))

    def get_config(
        self, level: str, identifier: str | None = None, resource: str | None = None
    ) -> LimiterConfig | None:
        """Return the record of one level (system, resource or entity); None when there is none."""
        return run(
            stored_limits.get_config(
                self.scope, stored_limits.slot_for(level, identifier, resource)
            )
        )

    def set_config(
        self,
        level: str,
        config: LimiterConfig,
        identifier: str | None = None,
        resource: str | None = None,
        principal: str | None = None,
    ) -> None:
        """Set the fields of one level that are given and keep the others."""
        run(
            stored_limits.set_config(
                self.scope, stored_limits.slot_for(level, identifier, resource), config, principal
            )
        )

    def get_audit_events(
        self, entity_id: str, limit: int = 100, start_event_id: str | None = None
    ) -> list[AuditEvent]:
        """List the changes of an entity, or of `$SYSTEM`, `$RESOURCE:name` or `$NAMESPACE:name`,
        newest first."""
        return run(audit.get_audit_events(self.scope, entity_id, limit, start_event_id))

    def get_usage_snapshots(
        self,
        entity_id: str | None = None,
        resource: str | None = None,
        window_type: str | None = None,
        start_time: datetime | str | None = None,
        end_time: datetime | str | None = None,
        limit: int = 100,
        next_key: dict[str, Any] | None = None,
    ) -> tuple[list[UsageSnapshot], dict[str, Any] | None]:
        """Return one page of usage by window, newest first, and the key of the next page."""
        return run(
            usage.get_usage_snapshots(
                self.scope,
                usage.make_query(entity_id, resource, window_type, start_time, end_time),
                limit,
                next_key,
            )
        )

    def get_usage_summary(
        self,
        entity_id: str | None = None,
        resource: str | None = None,
        window_type: str | None = None,
        start_time: datetime | str | None = None,
        end_time: datetime | str | None = None,
    ) -> UsageSummary:
        """Add up usage snapshots. Without `window_type`, use counts once for each type of window
        that is kept."""
        return run(
            usage.get_usage_summary(
                self.scope, usage.make_query(entity_id, resource, window_type, start_time, end_time)
            )
        )

    def invalidate_config_cache(
        self, entity_id: str | None = None, resource: str | None = None
    ) -> None:
        """Forget the cached configuration of an entity, of a resource, or everything."""
        self.scope.local.config_cache.invalidate(entity_id, resource)
