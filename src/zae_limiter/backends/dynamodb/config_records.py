"""Changes of configuration records: attributes to set, to remove, and the condition.

A record may hold attributes that this client does not know. A change keeps them, except attributes
of limits: the limits that it sets replace limits of every kind. A deletion removes all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...core.hierarchy import ConfigSlot
from ...core.models import LimiterConfig
from ...core.validation import DEFAULT_RESOURCE
from .codec import LIMIT_FIELDS, SESSION_PREFIX, encode_limit_attributes, indexed
from .expressions import IS_NEW, PK, Field, Term
from .item_reader import ItemReader, decode_record
from .schema import (
    gsi3_pk_entity_config,
    gsi3_sk_entity,
    key,
    limit_attr,
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
_VERSION = Field("config_version")
# Clients that do not know the attribute let the limits replace those of the next level.
_INHERIT = Field("inherit")


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """The key of a slot's configuration record."""

    namespace_id: str
    slot: ConfigSlot

    @property
    def pk(self) -> str:
        """The partition of the record and of its remains."""
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
        """The primary key of the record."""
        return key(self.pk, self.sk)

    @property
    def deleted_key(self) -> Key:
        """The primary key of the remains of a deleted record."""
        return key(self.pk, sk_deleted(self.sk))

    def attributes(self) -> dict[str, str]:
        """Return the attributes that every record under this key has."""
        said = {"GSI4PK": self.namespace_id, "GSI4SK": self.pk}
        if self.slot.resource is not None:
            said["resource"] = self.slot.resource
        if self.slot.entity_id is not None:
            said["entity_id"] = self.slot.entity_id
            said["GSI3PK"] = gsi3_pk_entity_config(self.namespace_id, self.resource)
            said["GSI3SK"] = gsi3_sk_entity(self.slot.entity_id)
        return said


@dataclass(frozen=True, slots=True)
class StoredConfig:
    """The stored state of a slot: its record, and the remains of a deleted record."""

    config_key: ConfigKey
    item: Item | None
    deleted: Item | None

    @property
    def version(self) -> int:
        """The number of times that the record has been set, before deletions, too."""
        return max(_version(self.item) or 0, _version(self.deleted) or 0)

    @property
    def says(self) -> bool:
        """Whether the record holds anything that can be deleted."""
        return any(map(_is_said, self.item or ()))

    @property
    def is_listed(self) -> bool:
        """Whether the registry counts the entity among those with limits of their own."""
        return "GSI3PK" in (self.item or ())

    @property
    def as_seen(self) -> Sequence[Term]:
        """The compare-and-set condition that the record is unchanged."""
        return _unchanged(self.item)

    @property
    def deleted_as_seen(self) -> Sequence[Term]:
        """The compare-and-set condition that the remains are unchanged."""
        return _unchanged(self.deleted)

    def remains(self) -> Item:
        """Return the remains of a deletion: the version, from which a new record counts on."""
        config_key = self.config_key
        values = indexed(config_key.namespace_id, config_key.pk, sk_deleted(config_key.sk))
        return to_item({**values, _VERSION: self.version})


def setting(stored: StoredConfig, change: LimiterConfig) -> Iterator[Term]:
    """Yield the update that sets the fields of a change, and keeps the others."""
    yield from stored.as_seen
    said = {name: flag for name in _FLAGS if (flag := getattr(change, name)) is not None}
    limits = encode_limit_attributes(change.limits or ())
    for name, value in {**stored.config_key.attributes(), **said, **limits}.items():
        yield Field(name).set(value)
    if change.limits is not None:
        for name in _stale(stored.item or {}, {limit.name for limit in change.limits}):
            yield Field(name).remove()
        if change.inherit:
            yield _INHERIT.set(True)
        elif _INHERIT in (stored.item or {}):
            yield _INHERIT.remove()
    if _is_null(stored.item):
        yield _VERSION.set(stored.version + 1)
    else:
        yield _VERSION.add(stored.version + 1 - (_version(stored.item) or 0))


def _unchanged(item: Item | None) -> Sequence[Term]:
    version = _version(item)
    if item is None:
        return IS_NEW
    if version is not None or _is_null(item):
        return (_VERSION.equals(version),)
    return PK.exists(), _VERSION.is_absent()


def _is_null(item: Item | None) -> bool:
    """Return whether there is a version that is null, to which nothing can be added."""
    return item is not None and _VERSION in item and _version(item) is None


def _version(item: Item | None) -> int | None:
    return None if item is None else decode_record(item, _stored_version)


def _stored_version(fields: ItemReader) -> int | None:
    return fields.maybe_integer(_VERSION)


def _is_said(attribute: str) -> bool:
    return attribute in _FLAGS or parse_limit_attr(attribute) is not None


def _stale(item: Item, names: set[str]) -> Iterator[str]:
    """Yield the stored attributes of limits that limits of these names replace."""
    current = {limit_attr(name, field) for name in names for field in LIMIT_FIELDS}
    for attribute in item.keys() - current:
        if attribute.startswith(SESSION_PREFIX) or parse_limit_attr(attribute) is not None:
            yield attribute
