"""Stored limits and behaviour, at every level."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import get_args

from ...core.audit import SYSTEM_AUDIT_ID, AuditAction, resource_audit_id
from ...core.exceptions import StorageUnavailable, ValidationError
from ...core.hierarchy import SYSTEM_SLOT, ConfigSlot
from ...core.limit import Limit, validate_limits
from ...core.models import (
    ConfigLevel,
    ConfigSource,
    LimiterConfig,
    OnUnavailable,
    OnUnavailableAction,
)
from ...core.validation import (
    DEFAULT_RESOURCE,
    validate_config_resource,
    validate_identifier,
    validate_resource,
    validate_text,
)
from ...ports.repository_protocol import Declaration
from ..config.resolve import resolve, resolve_on_unavailable
from ..scope import Scope, bounded
from .audit import check_page_size, new_event

_LEVELS = get_args(ConfigLevel)
# A warning names no more resources than a screen shows.
_MAX_WARNED = 100
_SYSTEM_FIELDS = ("on_unavailable", "auto_update", "strict_version")


def entity_slot(entity_id: str, resource: str) -> ConfigSlot:
    """The place of an entity's own limits for a resource, or for all (`_default_`)."""
    return ConfigSlot(validate_identifier(entity_id), validate_config_resource(resource))


def resource_slot(resource: str) -> ConfigSlot:
    """The place of a resource's defaults."""
    return ConfigSlot(resource=validate_resource(resource))


def slot_for(level: str, identifier: str | None, resource: str | None) -> ConfigSlot:
    """The place that a level's name and its parts mean."""
    if level not in _LEVELS:
        raise ValidationError("level", level, f"must be one of {', '.join(_LEVELS)}")
    if level == "entity":
        if identifier is None:
            raise ValidationError("identifier", identifier, "the entity level needs an entity id")
        return entity_slot(identifier, DEFAULT_RESOURCE if resource is None else resource)
    if level == "resource":
        return resource_slot(_one_name(identifier, resource))
    if identifier is not None or resource is not None:
        given = identifier if identifier is not None else resource
        raise ValidationError("identifier", given, "the system level takes none")
    return SYSTEM_SLOT


def _one_name(identifier: str | None, resource: str | None) -> str:
    """A resource may be named by either argument."""
    if identifier is not None and resource is not None and identifier != resource:
        raise ValidationError("identifier", identifier, "the resource level takes one name")
    name = identifier if resource is None else resource
    if name is None:
        raise ValidationError("resource", resource, "the resource level needs a resource")
    return name


def _audit_id(slot: ConfigSlot) -> str:
    if slot.entity_id is not None:
        return slot.entity_id
    return SYSTEM_AUDIT_ID if slot.resource is None else resource_audit_id(slot.resource)


@bounded
async def get_config(scope: Scope, slot: ConfigSlot) -> LimiterConfig | None:
    """Read the configuration stored at a slot; None when there is none."""
    page = await scope.store.configs.read(scope.namespace_id, [slot])
    return page.configs.get(slot)


async def get_limits(scope: Scope, slot: ConfigSlot) -> list[Limit]:
    """The limits stored there; empty when there are none."""
    config = await get_config(scope, slot)
    return list(config.limits or ()) if config else []


@bounded
async def set_config(
    scope: Scope,
    slot: ConfigSlot,
    change: LimiterConfig,
    principal: str | None = None,
    declaration: Declaration | None = None,
) -> bool:
    """Set the fields that are given and keep the others. A declaration may clear the limits, and
    False says that the record is not as it has seen it."""
    is_clearing = declaration is not None and change.limits == ()
    checked = change if is_clearing else _check_change(slot, change)
    event = new_event(
        scope.io,
        AuditAction.LIMITS_SET,
        _audit_id(slot),
        principal,
        slot.resource,
        **{k: v for k, v in checked.to_dict().items() if k != "config_version"},
    )
    configs = scope.store.configs
    version = await configs.write(scope.namespace_id, slot, checked, event, declaration)
    known = checked.on_unavailable or scope.local.config_cache.last_on_unavailable
    _forget(scope, slot)
    scope.local.config_cache.last_on_unavailable = known
    return version is not None


async def set_limits(
    scope: Scope,
    slot: ConfigSlot,
    limits: Sequence[Limit],
    principal: str | None = None,
    *,
    inherit: bool = False,
) -> None:
    """Replace the limits stored there. An entity that is given no limits has none of its own any
    more. `inherit`: the limits are merged by name with those of the next level."""
    if slot.entity_id is not None and limits in ([], ()):
        await delete_config(scope, slot, principal)
        return
    change = LimiterConfig(validate_limits(limits), inherit=inherit)
    await set_config(scope, slot, change, principal)


@bounded
async def delete_config(
    scope: Scope,
    slot: ConfigSlot,
    principal: str | None = None,
    declaration: Declaration | None = None,
) -> bool:
    """Delete the configuration of a slot, and return whether there was any, and as a declaration
    has seen it."""
    event = new_event(
        scope.io, AuditAction.LIMITS_DELETED, _audit_id(slot), principal, slot.resource
    )
    deleted = await scope.store.configs.delete(scope.namespace_id, slot, event, declaration)
    _forget(scope, slot)
    return deleted


def _check_change(slot: ConfigSlot, change: LimiterConfig) -> LimiterConfig:
    if not isinstance(change, LimiterConfig):
        raise ValidationError("config", change, "must be a LimiterConfig")
    if change == LimiterConfig():
        raise ValidationError("config", change, "sets nothing")
    if change.limits is not None:
        validate_limits(change.limits)
    for field in _SYSTEM_FIELDS:
        value = getattr(change, field)
        if value is not None and slot != SYSTEM_SLOT:
            raise ValidationError(field, value, "is stored at the system level only")
    if change.on_unavailable not in (None, *get_args(OnUnavailableAction)):
        raise ValidationError("on_unavailable", change.on_unavailable, "must be allow or block")
    _check_inherit(slot, change)
    for field in ("auto_update", "strict_version"):
        value = getattr(change, field)
        if value is not None and not isinstance(value, bool):
            raise ValidationError(field, value, "must be true or false")
    return change


def _check_inherit(slot: ConfigSlot, change: LimiterConfig) -> None:
    inherit = change.inherit
    if not isinstance(inherit, bool):
        raise ValidationError("inherit", inherit, "must be true or false")
    if inherit and slot == SYSTEM_SLOT:
        raise ValidationError("inherit", inherit, "the system level has no next level")
    if inherit and change.limits is None:
        raise ValidationError("inherit", inherit, "goes with limits")


@bounded
async def hidden_limits(scope: Scope, slot: ConfigSlot, names: Set[str]) -> dict[str, list[str]]:
    """Return the limits of weaker levels that limits of these names would hide at a slot if they do
    not inherit, each with the levels that have it."""
    page = await scope.store.configs.read(scope.namespace_id, await _weaker_slots(scope, slot))
    hidden: dict[str, list[str]] = {}
    for weaker, config in page.configs.items():
        for limit in config.limits or ():
            if limit.name not in names:
                hidden.setdefault(limit.name, []).append(_level_name(weaker))
    return hidden


async def _weaker_slots(scope: Scope, slot: ConfigSlot) -> list[ConfigSlot]:
    if slot.entity_id is None:
        return [SYSTEM_SLOT] if slot.resource is not None else []
    if slot.resource is not None and slot.resource != DEFAULT_RESOURCE:
        default = ConfigSlot(slot.entity_id, DEFAULT_RESOURCE)
        return [default, ConfigSlot(resource=slot.resource), SYSTEM_SLOT]
    resources = await scope.store.configs.resources_with_defaults(scope.namespace_id)
    return [*(ConfigSlot(resource=name) for name in resources[:_MAX_WARNED]), SYSTEM_SLOT]


def _level_name(slot: ConfigSlot) -> str:
    if slot.entity_id is not None:
        return f"entity '{slot.entity_id}'"
    return "the system" if slot.resource is None else f"resource '{slot.resource}'"


def _forget(scope: Scope, slot: ConfigSlot) -> None:
    scope.local.config_cache.invalidate(slot.entity_id, slot.resource)


@bounded
async def list_entities_with_custom_limits(
    scope: Scope, resource: str, limit: int | None, cursor: str | None
) -> tuple[list[str], str | None]:
    """List one page of entities that have limits of their own for a resource."""
    validate_config_resource(resource)
    if limit is not None:
        check_page_size(limit)
    if cursor is not None:
        validate_text("cursor", cursor)
    return await scope.store.configs.entities_with_limits(
        scope.namespace_id, resource, limit, cursor
    )


ResolvedLimits = tuple[list[Limit] | None, OnUnavailableAction | None, ConfigSource | None]


@bounded
async def resolve_limits(scope: Scope, entity_id: str, resource: str) -> ResolvedLimits:
    """The limits in force, what the system says of outages, and the level that decided."""
    validate_identifier(entity_id)
    validate_config_resource(resource)
    found = await resolve(scope, entity_id, resource)
    limits = None if found.limits is None else list(found.limits.limits)
    return limits, found.on_unavailable, found.source


@bounded
async def on_unavailable_or_block(scope: Scope) -> OnUnavailableAction:
    """The mode of the system record, or its last known mode while it cannot be read; else block."""
    try:
        return await resolve_on_unavailable(scope) or "block"
    except StorageUnavailable:
        return scope.local.config_cache.last_on_unavailable or "block"


async def system_defaults(scope: Scope) -> tuple[list[Limit], OnUnavailableAction | None]:
    """The system's limits, and what it says of outages."""
    config = await get_config(scope, SYSTEM_SLOT)
    return (list(config.limits or ()), config.on_unavailable) if config else ([], None)


async def system_defaults_enum(scope: Scope) -> tuple[list[Limit], OnUnavailable | None]:
    """The system's limits, and the mode for outages as the enum."""
    limits, action = await system_defaults(scope)
    return limits, None if action is None else OnUnavailable(action)


async def set_system_defaults(
    scope: Scope,
    limits: Sequence[Limit],
    on_unavailable: OnUnavailable | OnUnavailableAction | None,
    principal: str | None,
) -> None:
    """Set the system's limits and, if it is given, the mode for outages."""
    change = LimiterConfig(validate_limits(limits), _action(on_unavailable))
    await set_config(scope, SYSTEM_SLOT, change, principal)


async def set_on_unavailable(scope: Scope, mode: OnUnavailable | OnUnavailableAction) -> None:
    """Set the system's mode for outages."""
    await set_config(scope, SYSTEM_SLOT, LimiterConfig(on_unavailable=_action(mode)))


def _action(
    mode: OnUnavailable | OnUnavailableAction | None,
) -> OnUnavailableAction | None:
    """The stored form of a mode; bad values are refused when they are set."""
    return mode.value if isinstance(mode, OnUnavailable) else mode
