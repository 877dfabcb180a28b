"""Values to items and back, apart from buckets.

A table is shared with clients of other versions. So an item may have attributes that this client
does not know, or lack attributes that came later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from math import floor
from typing import Any

from ...core.audit import AuditEvent
from ...core.limit import Limit
from ...core.models import Entity, LimiterConfig, OnUnavailable, UsageSnapshot
from ...core.windows import WINDOW_TYPES, WindowType, iso, parse_iso, window_end
from ...ports.repository_protocol import NamespaceRecord
from .item_reader import ItemReader, decode_record
from .schema import (
    REGISTRY_ID,
    gsi1_pk_parent,
    gsi1_sk_child,
    limit_attr,
    parse_limit_attr,
    parse_name_attr,
    pk_audit,
    pk_entity,
    pk_system,
    sk_audit,
    sk_meta,
)
from .wire.values import Item, to_item

LIMIT_FIELDS = ("cp", "ra", "rp")
# Other clients store session quotas under attributes of their own.
SESSION_PREFIX = "w_"
_OTHER_SETTINGS = ("disabled", "cascade")
_SWITCHED_OFF = (None, False, "", "-")


def indexed(namespace_id: str, pk: str, sk: str) -> dict[str, Any]:
    """Return the key of a record, and its key in the index of its namespace."""
    return {"PK": pk, "SK": sk, "GSI4PK": namespace_id, "GSI4SK": pk}


def encode_entity_item(namespace_id: str, entity: Entity) -> Item:
    """Return the record `#META`."""
    values = indexed(namespace_id, pk_entity(namespace_id, entity.id), sk_meta())
    values |= {
        "entity_id": entity.id,
        "name": entity.name,
        "parent_id": entity.parent_id,
        "cascade": entity.cascade,
        "metadata": storable_map(entity.metadata),
        "version": entity.version,
    }
    if entity.created_at is not None:
        values["created_at"] = entity.created_at
    if entity.parent_id is not None:
        values["GSI1PK"] = gsi1_pk_parent(namespace_id, entity.parent_id)
        values["GSI1SK"] = gsi1_sk_child(entity.id)
    return to_item(values)


def decode_entity_item(item: Item) -> Entity:
    """Decode `#META`, or its projection in the index of children."""
    return decode_record(item, _entity)


def _entity(fields: ItemReader) -> Entity:
    return Entity(
        fields.text("entity_id"),
        fields.maybe_text("name"),
        fields.maybe_text("parent_id"),
        bool(fields.maybe_flag("cascade")),
        _readable_map(fields.map("metadata")),
        fields.maybe_text("created_at"),
        entity_version(fields),
    )


def entity_version(fields: ItemReader) -> int:
    """Return the version of an entity; older clients stored none for the first."""
    version = fields.maybe_integer("version")
    return 1 if version is None else version


def encode_limit_attributes(limits: Iterable[Limit]) -> dict[str, int]:
    """Return the attributes that hold these limits."""
    encoded: dict[str, int] = {}
    for limit in limits:
        amounts = (limit.capacity, limit.refill_amount, limit.refill_period_seconds)
        for field, amount in zip(LIMIT_FIELDS, amounts, strict=True):
            encoded[limit_attr(limit.name, field)] = amount
    return encoded


def decode_config_item(item: Item) -> LimiterConfig:
    """Decode a record `#CONFIG` of any level."""
    return decode_record(item, _config)


def _config(fields: ItemReader) -> LimiterConfig:
    _refuse_other_kinds(fields)
    on_unavailable = fields.maybe_text("on_unavailable")
    return LimiterConfig(
        _limits(fields) or None,
        None if on_unavailable is None else OnUnavailable(on_unavailable).value,
        fields.maybe_flag("auto_update"),
        fields.maybe_flag("strict_version"),
        fields.maybe_integer("config_version"),
        bool(fields.maybe_flag("inherit")),
    )


def _refuse_other_kinds(fields: ItemReader) -> None:
    """Raise for a setting of another client that this one cannot enforce. Without this, an entity
    that was disabled there would be admitted here."""
    for attribute in fields.item:
        if _is_of_another_kind(attribute) and fields.value(attribute) not in _SWITCHED_OFF:
            said = fields.value(attribute)
            raise ValueError(f"{attribute} is {said!r}, which this client cannot enforce")


def _is_of_another_kind(attribute: str) -> bool:
    parsed = parse_limit_attr(attribute)
    if parsed is not None:
        return parsed[1] not in LIMIT_FIELDS
    return attribute in _OTHER_SETTINGS or attribute.startswith(SESSION_PREFIX)


def _limits(fields: ItemReader) -> tuple[Limit, ...]:
    parsed = filter(None, map(parse_limit_attr, fields.item))
    names = {name for name, field in parsed if field in LIMIT_FIELDS}
    return tuple(_limit(fields, name) for name in sorted(names))


def _limit(fields: ItemReader, name: str) -> Limit:
    capacity, amount, period_s = (fields.integer(limit_attr(name, f)) for f in LIMIT_FIELDS)
    return Limit(name, capacity, amount, period_s)


def encode_event_item(namespace_id: str, event: AuditEvent, expires_at_s: int) -> Item:
    """Return an audit record."""
    pk = pk_audit(namespace_id, event.entity_id)
    return to_item(
        {
            **indexed(namespace_id, pk, sk_audit(event.event_id)),
            "entity_id": event.entity_id,
            "event_id": event.event_id,
            "timestamp": event.timestamp,
            "action": event.action,
            "principal": event.principal,
            "resource": event.resource,
            "details": storable_map(event.details),
            "ttl": expires_at_s,
        }
    )


def decode_event_item(item: Item) -> AuditEvent:
    """Decode an audit record."""
    return decode_record(item, _event)


def _event(fields: ItemReader) -> AuditEvent:
    return AuditEvent(
        fields.text("event_id"),
        fields.text("timestamp"),
        fields.text("action"),
        fields.text("entity_id"),
        fields.maybe_text("principal"),
        fields.maybe_text("resource"),
        _readable_map(fields.map("details")),
    )


def encode_namespace_item(record: NamespaceRecord, sk: str) -> Item:
    """Return a record of the registry: by name or by id, as the sort key says."""
    values = indexed(REGISTRY_ID, pk_system(REGISTRY_ID), sk)
    values |= {
        "namespace_id": record.namespace_id,
        "namespace_name": record.name,
        "status": record.status,
        "created_at": record.created_at,
    }
    if record.deleted_at is not None:
        values["deleted_at"] = record.deleted_at
    return to_item(values)


def decode_namespace_item(item: Item) -> NamespaceRecord:
    """Decode a record of the registry, by name or by id."""
    return decode_record(item, _namespace)


def _namespace(fields: ItemReader) -> NamespaceRecord:
    return NamespaceRecord(
        fields.text("namespace_name"),
        fields.text("namespace_id"),
        fields.text("created_at"),
        fields.text("status"),
        fields.maybe_text("deleted_at"),
    )


def decode_snapshot_item(item: Item) -> UsageSnapshot:
    """Decode a usage record."""
    return decode_record(item, _snapshot)


def _snapshot(fields: ItemReader) -> UsageSnapshot:
    window, start = _window_type(fields.text("window")), fields.text("window_start")
    return UsageSnapshot(
        fields.text("entity_id"),
        fields.text("resource"),
        start,
        iso(window_end(window, parse_iso(start))),
        window,
        _counters(fields),
        fields.integer("total_events"),
    )


def _window_type(text: str) -> WindowType:
    for window in WINDOW_TYPES:
        if window == text:
            return window
    raise ValueError(f"window is {text!r}, not one of {', '.join(WINDOW_TYPES)}")


def _counters(fields: ItemReader) -> dict[str, int]:
    """Every number that no other purpose claims, in whole tokens. A limit of which all was given
    back is not shown, as in every other store."""
    counters: dict[str, int] = {}
    for attribute, value in fields.item.items():
        name = parse_name_attr(attribute)
        if name is not None and "N" in value:
            tokens = fields.number(attribute)
            if tokens:
                counters[name] = floor(tokens)
    return counters


def storable_map(content: dict[str, Any]) -> dict[str, Any]:
    """Return a map of JSON values as DynamoDB takes it. A key must not be empty, so a key of
    nothing but NUL characters gets one more NUL. A float is stored by its shortest digits."""

    def storable(value: Any) -> Any:
        return Decimal(repr(value)) if isinstance(value, float) else value

    return _converted(content, lambda key: f"{key}\0" if not key.strip("\0") else key, storable)


def _readable_map(content: dict[str, Any]) -> dict[str, Any]:
    def readable(value: Any) -> Any:
        if isinstance(value, Decimal):
            return float(value)
        # JSON has no sets, but a client of another kind may have stored one.
        return sorted(value) if isinstance(value, set) else value

    return _converted(content, lambda key: key[1:] if not key.strip("\0") else key, readable)


def _converted(
    content: dict[str, Any], rename: Callable[[str], str], convert: Callable[[Any], Any]
) -> dict[str, Any]:
    def converted(value: Any) -> Any:
        if isinstance(value, dict):
            return {rename(key): converted(member) for key, member in value.items()}
        if isinstance(value, list | tuple):
            return [converted(member) for member in value]
        return convert(value)

    return {rename(key): converted(value) for key, value in content.items()}
