"""What is in force for an entity and resource: what its own records say over what holds for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ...core.hierarchy import SYSTEM_SLOT, ConfigSlot, decide, own_slots, shared_slots
from ...core.limit import Limit, LimitSet
from ...core.models import ConfigSource, LimiterConfig, OnUnavailableAction
from ...ports.repository_protocol import ConfigPage


class Own(NamedTuple):
    """What an entity's own records say."""

    limits: LimitSet | None = None
    source: ConfigSource | None = None
    parent_id: str | None = None
    cascade: bool = False


_NOTHING = Own()


# Compared by identity: those that say the same are the same, and a great many share each.
@dataclass(frozen=True, slots=True, eq=False)
class Resolution:
    """What is in force for an entity and resource."""

    limits: LimitSet | None
    source: ConfigSource | None
    on_unavailable: OnUnavailableAction | None
    parent_id: str | None
    cascade: bool

    @property
    def has_own_limits(self) -> bool:
        """Whether the entity's own records decided."""
        return self.source in ("entity", "entity_default")

    @property
    def own(self) -> Own:
        """What of it the entity's own records said."""
        if self.has_own_limits:
            return Own(self.limits, self.source, self.parent_id, self.cascade)
        return Own(None, None, self.parent_id, self.cascade)


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """What a slot that entities share was seen to say, and when."""

    since_ms: int
    config: LimiterConfig | None


class Named(NamedTuple):
    """The entities that have records of their own, None if that cannot be told, and since when
    that is known."""

    since_ms: int
    entity_ids: frozenset[str] | None


class Defaults(NamedTuple):
    """What holds for entities that have nothing of their own, and since when that is known."""

    since_ms: int
    resolution: Resolution


def defaults(resource: str, records: Mapping[ConfigSlot, Record]) -> Defaults:
    """What the records decide that entities share."""
    places = shared_slots(resource)
    said = {slot: records[slot].config for slot in places}
    system = said[SYSTEM_SLOT]
    on_unavailable = None if system is None else system.on_unavailable
    resolution = _default(*decide(places, said), on_unavailable)
    return Defaults(min(records[slot].since_ms for slot in places), resolution)


@lru_cache(maxsize=4096)
def _default(
    limits: tuple[Limit, ...] | None,
    source: ConfigSource | None,
    on_unavailable: OnUnavailableAction | None,
) -> Resolution:
    return Resolution(_limit_set(limits), source, on_unavailable, None, False)


def own(entity_id: str, resource: str, page: ConfigPage) -> Own:
    """What an entity's own records say of a resource."""
    entity = page.entity
    if entity is None and not page.configs:
        return _NOTHING
    limits, source = decide(own_slots(entity_id, resource), page.configs)
    if entity is None:
        return Own(_limit_set(limits), source)
    return Own(_limit_set(limits), source, entity.parent_id, entity.cascade)


@lru_cache(maxsize=4096)
def combine(own: Own, default: Resolution) -> Resolution:
    """What both come to."""
    if own == _NOTHING:
        return default
    decisive = default if own.limits is None else own
    return Resolution(
        decisive.limits, decisive.source, default.on_unavailable, own.parent_id, own.cascade
    )


def _limit_set(limits: tuple[Limit, ...] | None) -> LimitSet | None:
    return None if limits is None else LimitSet.of(limits)
