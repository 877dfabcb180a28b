"""Old records are told from today's by their keys and by the map that holds their fields."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ....core.audit import AuditEvent
from ....core.exceptions import StorageUnavailable
from ....core.hierarchy import SYSTEM_SLOT, ConfigSlot
from ....core.limit import Limit
from ....core.models import Entity, LimiterConfig
from ..codec import decode_config_item, decode_entity_item, decode_event_item
from ..expressions import Field, request_fields
from ..item_reader import ItemReader, decode_record
from ..schema import REGISTRY_ID, sk_config, sk_version
from ..table import Table
from ..wire.values import Item

OLD_LIMIT_SK = "#LIMIT#"
OLD_BUCKET_SK = "#BUCKET#"
USAGE_SK = "#USAGE#"
AUDIT_SK = "#AUDIT#"
_BURST = "_bx"
# A page has a megabyte. Without this bound, opening a large table would take minutes.
_MOST_PAGES = 50
_REGISTRY_KEYS = {"#RESOURCES", "#ENTITY_CONFIG_RESOURCES"}
_PARTITION = re.compile(r"(?:([^/#]+)/)?(ENTITY|RESOURCE|SYSTEM|AUDIT)#(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class OldKey:
    """The key of a record, taken apart. Without a namespace id it is of the first namespace."""

    namespace_id: str | None
    kind: str
    name: str
    sk: str

    @property
    def is_config(self) -> bool:
        """Whether the record holds limits or settings."""
        return self.sk.startswith((OLD_LIMIT_SK, sk_config()))

    @property
    def is_bucket(self) -> bool:
        """Whether the record is a bucket, or one limit of a bucket."""
        return self.kind == "ENTITY" and self.sk.startswith(OLD_BUCKET_SK)

    @property
    def is_registry(self) -> bool:
        """Whether the record lists others, and is made anew with them."""
        return self.sk in _REGISTRY_KEYS

    @property
    def is_version(self) -> bool:
        """Whether the record holds versions. The registry's own stays where it is."""
        return self.kind == "SYSTEM" and self.sk == sk_version()


def old_key(item: Item) -> OldKey | None:
    """Return the key of a record of an older shape; None for one of today's, and for others."""
    found = _PARTITION.fullmatch(item["PK"]["S"])
    if found is None or found[1] == REGISTRY_ID:
        return None
    key = OldKey(found[1], found[2], found[3], item["SK"]["S"])
    is_old = key.namespace_id is None or key.is_version or "M" in item.get("data", {})
    return key if is_old or key.sk.startswith((OLD_LIMIT_SK, OLD_BUCKET_SK)) else None


def flattened(item: Item) -> Item:
    """Return the item with the fields of its map beside the others. A burst, where a limit has one,
    takes the place of the capacity: it was the ceiling."""
    nested = item.get("data", {}).get("M", {})
    flat = {**nested, **{name: value for name, value in item.items() if name != "data"}}
    bursts = {name: flat.pop(name) for name in list(flat) if name.endswith(_BURST)}
    return {**flat, **{f"{name.removesuffix(_BURST)}_cp": bursts[name] for name in bursts}}


def entity_of(item: Item) -> Entity:
    """Return the entity of an old record `#META`."""
    fields = flattened(item)
    fields.setdefault("entity_id", {"S": item["PK"]["S"].partition("#")[2]})
    return decode_entity_item(fields)


def event_of(item: Item) -> AuditEvent:
    """Return the event of an old audit record."""
    fields = flattened(item)
    fields.setdefault("event_id", {"S": item["SK"]["S"].removeprefix(AUDIT_SK)})
    fields.setdefault("entity_id", {"S": item["PK"]["S"].partition("#")[2]})
    return decode_event_item(fields)


def slot_of(key: OldKey) -> tuple[ConfigSlot, str | None]:
    """Return the slot of a record with limits or settings, and the name of its limit, if it is of
    one limit alone. The system's limits for one resource are defaults of that resource."""
    *resources, limit_name = key.sk.removeprefix(OLD_LIMIT_SK).split("#")
    if key.sk.startswith(OLD_LIMIT_SK):
        resource = resources[0] if resources else None
    else:
        resource, limit_name = key.sk.removeprefix(sk_config()).removeprefix("#") or None, ""
    if key.kind == "ENTITY":
        return ConfigSlot(key.name, resource), limit_name or None
    if key.kind == "RESOURCE":
        return ConfigSlot(resource=key.name), limit_name or None
    slot = SYSTEM_SLOT if resource is None else ConfigSlot(resource=resource)
    return slot, limit_name or None


def config_of(item: Item, limit_name: str | None) -> LimiterConfig:
    """Return what an old record says of its slot: one limit, or all."""
    fields = flattened(item)
    found = decode_config_item(fields)
    if limit_name is None:
        return found
    limit = decode_record(fields, lambda reader: _limit(reader, limit_name))
    return LimiterConfig((limit,), found.on_unavailable, found.auto_update, found.strict_version)


def _limit(reader: ItemReader, name: str) -> Limit:
    """Return a limit that was stored alone. Its burst was the ceiling."""
    capacity = reader.integer("capacity")
    burst, amount = reader.maybe_integer("burst"), reader.maybe_integer("refill_amount")
    period_s = reader.integer("refill_period_seconds")
    return Limit(name, burst or capacity, amount or capacity, period_s)


def merged(configs: list[LimiterConfig]) -> LimiterConfig:
    """Return one configuration of several for the same slot; the later of two counts."""
    limits = {limit.name: limit for config in configs for limit in config.limits or ()}

    def last(field: str) -> object:
        said = [getattr(config, field) for config in configs]
        return next((value for value in reversed(said) if value is not None), None)

    settings = {name: last(name) for name in ("on_unavailable", "auto_update", "strict_version")}
    return LimiterConfig(tuple(limits.values()) or None, **settings)  # type: ignore[arg-type]


async def may_hold_old_records(table: Table) -> bool:
    """Return whether a table may have a record of an older shape: one was found, or the table is
    larger than what is read here, or the client may not look. Only a migration reads all of it."""
    shown = [Field(name).show() for name in ("PK", "SK", "data")]
    request = {"TableName": table.name, **request_fields(shown)}
    for _ in range(_MOST_PAGES):
        try:
            answer = await table.repeatable("Scan", request)
        except StorageUnavailable as error:
            if error.is_outage:
                raise
            return True
        if any(old_key(item) is not None for item in answer["Items"]):
            return True
        if "LastEvaluatedKey" not in answer:
            return False
        request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
    return True
