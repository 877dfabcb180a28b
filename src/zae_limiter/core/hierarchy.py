"""The four levels at which limits are stored, and which of them decides.

    entity + resource  >  entity `_default_`  >  resource  >  system  >  constructor

The first level that has limits wins as a whole. If it inherits, the limits of the next level that
has any are added, except those with a name that it has itself; and so on if that level inherits,
too. The limits of the constructor are never added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from .limit import Limit
from .models import ConfigSource, LimiterConfig
from .validation import DEFAULT_RESOURCE

MAX_LEVELS = 8


class ConfigSlot(NamedTuple):
    """The place of one configuration record. None where the level has no such part."""

    entity_id: str | None = None
    resource: str | None = None


Slots = tuple[ConfigSlot, ...]
SYSTEM_SLOT = ConfigSlot()


def slots(entity_id: str, resource: str) -> Slots:
    """Return the places that decide for an entity and a resource, the strongest first."""
    return own_slots(entity_id, resource) + shared_slots(resource)


def own_slots(entity_id: str, resource: str) -> Slots:
    """Return the places that are the entity's own."""
    default = ConfigSlot(entity_id, DEFAULT_RESOURCE)
    if resource == DEFAULT_RESOURCE:
        return (default,)
    return ConfigSlot(entity_id, resource), default


@lru_cache(maxsize=4096)
def shared_slots(resource: str) -> Slots:
    """Return the places that all entities share."""
    if resource == DEFAULT_RESOURCE:
        return (SYSTEM_SLOT,)
    return ConfigSlot(resource=resource), SYSTEM_SLOT


def decide(
    places: Sequence[ConfigSlot], stored: Mapping[ConfigSlot, LimiterConfig | None]
) -> tuple[tuple[Limit, ...] | None, ConfigSource | None]:
    """Return the limits in force, and the strongest level that set any. `places`: the strongest
    first."""
    limits, source, _ = decide_part(places, stored)
    return limits, source


def decide_part(
    places: Sequence[ConfigSlot], stored: Mapping[ConfigSlot, LimiterConfig | None]
) -> tuple[tuple[Limit, ...] | None, ConfigSource | None, bool]:
    """Return what `decide` returns for some places, and whether weaker places add to it."""
    limits: tuple[Limit, ...] | None = None
    source: ConfigSource | None = None
    for slot in places:
        config = stored.get(slot)
        if config is None or not config.limits:
            continue
        limits, source = merge_limits(limits, config.limits), source or _source(slot)
        if not config.inherit:
            return limits, source, False
    return limits, source, True


def merge_limits(
    strong: tuple[Limit, ...] | None, weak: tuple[Limit, ...] | None
) -> tuple[Limit, ...] | None:
    """Return the strong limits, and those of the weak whose names the strong ones do not have."""
    if not strong or not weak:
        return strong or weak
    names = {limit.name for limit in strong}
    return strong + tuple(limit for limit in weak if limit.name not in names)


def _source(slot: ConfigSlot) -> ConfigSource:
    if slot.entity_id is not None:
        return "entity_default" if slot.resource == DEFAULT_RESOURCE else "entity"
    return "system" if slot.resource is None else "resource"
