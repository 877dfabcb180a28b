"""How a configuration record changes: what to set, what to remove, and what must still hold.

A record may hold attributes that nobody here knows. They are kept. Only what would
contradict a limit that is set goes with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...core.hierarchy import ConfigSlot
from ...core.models import LimiterConfig
from ...core.naming import DEFAULT_RESOURCE
from .codec import LIMIT_FIELDS, encode_limits, indexed
from .expressions import Expression
from .fields import Fields, read
from .schema import (
    gsi3_pk_entity_config,
    gsi3_sk_entity,
    key,
    parse_limit_attr,
    pk_entity,
    pk_resource,
    pk_system,
    sk_config,
    sk_deleted,
)
from .table import Key
from .wire.values import Item, to_item

_FLAGS = ("on_unavailable", "auto_update", "strict_version")
_LISTED = ("GSI3PK", "GSI3SK")
_STRUCTURE = {"PK", "SK", "GSI4PK", "GSI4SK", "entity_id", "resource", "config_version"}
_VERSION = "config_version"
# A limit that is reset by a calendar or a session does not refill.
_RESETS = ("rsched", "rsa")
_SESSION_PREFIX = "w_"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the configuration of a slot is kept."""

    namespace_id: str
    slot: ConfigSlot

    @property
    def pk(self) -> str:
        """The partition of the record and of what is left when it is deleted."""
        if self.slot.entity_id is not None:
            return pk_entity(self.namespace_id, self.slot.entity_id)
        if self.slot.resource is not None:
            return pk_resource(self.namespace_id, self.slot.resource)
        return pk_system(self.namespace_id)

    @property
    def sk(self) -> str:
        """The sort key of the record."""
        return sk_config(None if self.slot.entity_id is None else self.resource)

    @property
    def resource(self) -> str:
        """The resource that an entity's limits are for."""
        return self.slot.resource or DEFAULT_RESOURCE

    @property
    def key(self) -> Key:
        """Of the record."""
        return key(self.pk, self.sk)

    @property
    def deleted_key(self) -> Key:
        """Of what is left when the record is deleted."""
        return key(self.pk, sk_deleted(self.sk))

    def attributes(self) -> dict[str, Any]:
        """What every record of this place says of itself, besides its key."""
        parts = {"entity_id": self.slot.entity_id, "resource": self.slot.resource}
        said: dict[str, Any] = {name: value for name, value in parts.items() if value is not None}
        return said | {"GSI4PK": self.namespace_id, "GSI4SK": self.pk}

    def listed(self) -> dict[str, str]:
        """The keys by which an entity with limits of its own is found."""
        if self.slot.entity_id is None:
            return {}
        pk = gsi3_pk_entity_config(self.namespace_id, self.resource)
        return dict(zip(_LISTED, (pk, gsi3_sk_entity(self.slot.entity_id)), strict=True))


@dataclass(frozen=True, slots=True)
class Stored:
    """What was found at a place: the record, and what a deleted one has left."""

    place: Place
    item: Item | None
    deleted: Item | None

    @property
    def version(self) -> int:
        """How often the record has been set, deletions in between included."""
        return max(_version(self.item) or 0, _version(self.deleted) or 0)

    @property
    def says(self) -> bool:
        """Whether it says anything that can be deleted."""
        return any(map(_is_said, self.item or ()))

    @property
    def is_listed(self) -> bool:
        """Whether the entity is counted as one with limits of its own."""
        return _LISTED[0] in (self.item or ())

    @property
    def must_stay(self) -> bool:
        """Whether it also holds what nobody here knows."""
        known = _STRUCTURE.union(_LISTED)
        return any(name not in known and not _is_said(name) for name in self.item or ())

    @property
    def as_seen(self) -> Expression:
        """The condition that nobody has set or deleted the record meanwhile."""
        return _unchanged(Expression(), self.item)

    @property
    def deleted_as_seen(self) -> Expression:
        """The condition that nobody has made and deleted the record meanwhile."""
        return _unchanged(Expression(), self.deleted)

    def remains(self) -> Item:
        """What a deletion leaves: the version to count on from."""
        place = self.place
        values = indexed(place.namespace_id, place.pk, sk_deleted(place.sk))
        return to_item({**values, _VERSION: self.version})


def setting(stored: Stored, change: LimiterConfig) -> tuple[Expression, bool]:
    """The update that sets what a change says, and whether there are limits afterwards."""
    e, place, item = _unchanged(Expression(), stored.item), stored.place, stored.item or {}
    limits = encode_limits(change.limits or ())
    said = {name: flag for name in _FLAGS if (flag := getattr(change, name)) is not None}
    doomed: set[str] = set()
    if change.limits is not None:
        doomed.update(_stale(item, {limit.name for limit in change.limits}))
    has_limits = bool(limits) or any(_is_limit(name) for name in item if name not in doomed)
    if has_limits:
        said |= place.listed()
    else:
        doomed |= {name for name in _LISTED if name in item}
    for name, value in {**place.attributes(), **limits, **said}.items():
        e.set(name, e.value(value))
    for name in sorted(doomed):
        e.remove(name)
    e.add(_VERSION, stored.version + 1 - (_version(stored.item) or 0))
    return e, has_limits


def stripping(stored: Stored) -> Expression:
    """The update that removes what the record says, and leaves what nobody here knows."""
    e = stored.as_seen
    for name in stored.item or ():
        if _is_said(name) or name in _LISTED:
            e.remove(name)
    return e


def _unchanged(e: Expression, item: Item | None) -> Expression:
    version = _version(item)
    if version is None:
        e.require("is unversioned", f"attribute_not_exists({e.name(_VERSION)})")
    else:
        e.require("has this version", f"{e.name(_VERSION)} = {e.value(version)}")
    return e


def _version(item: Item | None) -> int | None:
    return None if item is None else read(item, _stored_version)


def _stored_version(fields: Fields) -> int | None:
    return fields.maybe_integer(_VERSION)


def _is_limit(attribute: str) -> bool:
    parsed = parse_limit_attr(attribute)
    return parsed is not None and parsed[1] in LIMIT_FIELDS


def _is_said(attribute: str) -> bool:
    return attribute in _FLAGS or parse_limit_attr(attribute) is not None


def _stale(item: Item, names: set[str]) -> Iterator[str]:
    """What is stored of limits and does not go with limits of these names."""
    for attribute in item:
        parsed = parse_limit_attr(attribute)
        if attribute.startswith(_SESSION_PREFIX):
            is_stale = attribute.removeprefix(_SESSION_PREFIX).rpartition("_")[0] in names
        else:
            is_stale = parsed is not None and (parsed[0] not in names or parsed[1] in _RESETS)
        if is_stale:
            yield attribute
