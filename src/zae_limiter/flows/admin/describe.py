"""Answers in the shapes that the public interface has."""

from __future__ import annotations

from datetime import UTC, datetime

from ...core.exceptions import StorageUnavailable, ValidationError
from ...core.hierarchy import SYSTEM_SLOT
from ...core.limit import BucketState, Limit
from ...core.models import ConfigSource, OnUnavailable, OnUnavailableAction
from ...core.validation import validate_config_resource, validate_identifier, validate_limit_name
from ...core.windows import iso
from ...ports.repository_protocol import NamespaceRecord
from ..config.resolve import resolve, resolve_on_unavailable
from ..scope import Scope
from . import capacity
from . import limits as stored_limits

ResolvedLimits = tuple[list[Limit] | None, OnUnavailableAction | None, ConfigSource | None]


async def resolve_limits(scope: Scope, entity_id: str, resource: str) -> ResolvedLimits:
    """The limits in force, what the system says of outages, and the level that decided."""
    validate_identifier(entity_id)
    validate_config_resource(resource)
    found = await resolve(scope, entity_id, resource)
    limits = None if found.limits is None else list(found.limits.limits)
    return limits, found.on_unavailable, found.source


async def on_unavailable_or_block(scope: Scope) -> OnUnavailableAction:
    """What the system record says, or last said while it cannot be read; else block."""
    try:
        return await resolve_on_unavailable(scope) or "block"
    except StorageUnavailable:
        return scope.local.config_cache.last_on_unavailable or "block"


async def system_defaults(scope: Scope) -> tuple[list[Limit], OnUnavailableAction | None]:
    """The system's limits, and what it says of outages."""
    config = await stored_limits.get_config(scope, SYSTEM_SLOT)
    return (list(config.limits or ()), config.on_unavailable) if config else ([], None)


async def get_bucket(
    scope: Scope, entity_id: str, resource: str, limit_name: str, shard_id: int
) -> BucketState | None:
    """The stored state of one limit of one shard of a bucket."""
    validate_limit_name(limit_name, "limit_name")
    states = await capacity.get_buckets(scope, entity_id, resource, shard_id)
    return next((state for state in states if state.limit_name == limit_name), None)


async def can_ping(scope: Scope) -> bool:
    """Whether the store answers."""
    try:
        await scope.store.ping()
    except Exception:
        return False
    return True


def on_unavailable_action(value: OnUnavailable | str | None) -> OnUnavailableAction | None:
    """The stored form of a mode; bad values are refused when they are set."""
    return value.value if isinstance(value, OnUnavailable) else value  # type: ignore[return-value]


def namespace_dict(record: NamespaceRecord) -> dict[str, str]:
    """A namespace as users see it."""
    return {
        "name": record.name,
        "namespace_id": record.namespace_id,
        "status": record.status,
        "created_at": record.created_at,
    }


def listed_namespace_dict(record: NamespaceRecord) -> dict[str, str]:
    """An active namespace in a list."""
    shown = namespace_dict(record)
    del shown["status"]
    return shown


def orphan_dict(record: NamespaceRecord) -> dict[str, str]:
    """A deleted namespace as users see it."""
    return {
        "namespace_id": record.namespace_id,
        "namespace": record.name,
        "deleted_at": record.deleted_at or "",
    }


def time_text(field: str, moment: datetime | None) -> str | None:
    """A moment as text; a naive one is UTC."""
    if moment is None:
        return None
    if not isinstance(moment, datetime):
        raise ValidationError(field, moment, "must be a datetime")
    return iso(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


async def system_defaults_enum(scope: Scope) -> tuple[list[Limit], OnUnavailable | None]:
    """The same, with the mode as the enum."""
    limits, action = await system_defaults(scope)
    return limits, None if action is None else OnUnavailable(action)
