"""The limits in force for an entity and a resource, decided from its records and shared ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ...core.hierarchy import (
    SYSTEM_SLOT,
    decide,
    decide_part,
    merge_limits,
    own_slots,
    shared_slots,
)
from ...core.limit import Limit, LimitSet
from ...core.models import ConfigSource, LimiterConfig, OnUnavailableAction
from ...ports.repository_protocol import ConfigPage


class OwnSettings(NamedTuple):
    """The settings in an entity's own records, for one resource. `inherits`: the limits that all
    entities share are added."""

    limits: LimitSet | None = None
    source: ConfigSource | None = None
    parent_id: str | None = None
    cascade: bool = False
    inherits: bool = False


NO_SETTINGS = OwnSettings()


# Compared by identity: the functions below are memoized, so that equal ones are one object.
@dataclass(frozen=True, slots=True, eq=False)
class Resolution:
    """The limits and settings in force for an entity and a resource. `own`: the part that comes
    from the entity's own records."""

    limits: LimitSet | None
    source: ConfigSource | None
    on_unavailable: OnUnavailableAction | None
    parent_id: str | None
    cascade: bool
    own: OwnSettings = NO_SETTINGS

    @property
    def has_own_limits(self) -> bool:
        """Whether the limits come from the entity's own records."""
        return self.source in ("entity", "entity_default")


# Compared by identity: that makes a record a cheap key of the memo below.
@dataclass(frozen=True, slots=True, eq=False)
class SharedRecord:
    """A record that all entities share, as it was read at `since_ms`; None if it is absent."""

    since_ms: int
    config: LimiterConfig | None


class SharedSettings(NamedTuple):
    """The resolution for entities without records; `since_ms` is that of its oldest record."""

    since_ms: int
    resolution: Resolution


@lru_cache(maxsize=4096)
def shared_settings(resource: str, *records: SharedRecord) -> SharedSettings:
    """Decide for entities without records of their own. `records`: one for each shared slot."""
    places = shared_slots(resource)
    configs = {slot: r.config for slot, r in zip(places, records, strict=True)}
    system = configs[SYSTEM_SLOT]
    on_unavailable = None if system is None else system.on_unavailable
    resolution = _without_own(*decide(places, configs), on_unavailable)
    return SharedSettings(min(record.since_ms for record in records), resolution)


@lru_cache(maxsize=4096)
def _without_own(
    limits: tuple[Limit, ...] | None,
    source: ConfigSource | None,
    on_unavailable: OnUnavailableAction | None,
) -> Resolution:
    return Resolution(_limit_set(limits), source, on_unavailable, None, False)


def own_settings(entity_id: str, resource: str, page: ConfigPage) -> OwnSettings:
    """Pick an entity's own settings for a resource out of the records that were read."""
    entity = page.entity
    if entity is None and not page.configs:
        return NO_SETTINGS
    limits, source, inherits = decide_part(own_slots(entity_id, resource), page.configs)
    inherits = inherits and limits is not None
    parent_id, cascade = (None, False) if entity is None else (entity.parent_id, entity.cascade)
    return OwnSettings(_limit_set(limits), source, parent_id, cascade, inherits)


@lru_cache(maxsize=4096)
def with_own(shared: Resolution, own: OwnSettings) -> Resolution:
    """Put an entity's own settings over those that all entities share."""
    if own == NO_SETTINGS:
        return shared
    limits, source = own.limits, own.source
    if limits is None:
        limits, source = shared.limits, shared.source
    elif own.inherits and shared.limits is not None:
        limits = _limit_set(merge_limits(limits.limits, shared.limits.limits))
    return Resolution(limits, source, shared.on_unavailable, own.parent_id, own.cascade, own)


def _limit_set(limits: tuple[Limit, ...] | None) -> LimitSet | None:
    return None if limits is None else LimitSet.of(limits)
