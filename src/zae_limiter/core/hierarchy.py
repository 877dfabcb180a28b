"""The four levels at which limits are stored, and which of them decides.

    entity + resource  >  entity `_default_`  >  resource  >  system  >  constructor

The first level that has limits wins as a whole: levels are never merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .limit import Limit
from .models import ConfigSource, LimiterConfig
from .naming import DEFAULT_RESOURCE

MAX_LEVELS = 8


class ConfigSlot(NamedTuple):
    """One place where configuration is stored. None where the level has no such part."""

    entity_id: str | None = None
    resource: str | None = None


SYSTEM_SLOT = ConfigSlot()


def slots(entity_id: str, resource: str) -> Iterator[tuple[ConfigSource, ConfigSlot]]:
    """The places that decide for this entity and resource, the strongest first."""
    if resource != DEFAULT_RESOURCE:
        yield "entity", ConfigSlot(entity_id, resource)
    yield "entity_default", ConfigSlot(entity_id, DEFAULT_RESOURCE)
    if resource != DEFAULT_RESOURCE:
        yield "resource", ConfigSlot(resource=resource)
    yield "system", SYSTEM_SLOT


def decide(
    entity_id: str, resource: str, stored: Mapping[ConfigSlot, LimiterConfig | None]
) -> tuple[tuple[Limit, ...] | None, ConfigSource | None]:
    """The limits in force, and the level that said so."""
    for source, slot in slots(entity_id, resource):
        config = stored.get(slot)
        if config is not None and config.limits:
            return config.limits, source
    return None, None
