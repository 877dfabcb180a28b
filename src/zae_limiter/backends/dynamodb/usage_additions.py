"""Additions to usage snapshots, as DynamoDB requests.

A snapshot is one flat item. One update adds to its numbers and moves the last sequence of each
shard forward, under the condition that none of them has reached the first part that is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal

from ...core.exceptions import StoredDataError
from ...core.limit import MILLI
from ...core.usage import UsageAddition
from ...core.windows import iso, window_key
from .expressions import Field, KeyText, Term, Update
from .item_reader import record_name
from .schema import (
    TTL_ATTRIBUTE,
    gsi2_pk_resource,
    gsi2_sk_usage,
    gsi4_sk_usage,
    is_sequence_text,
    name_attr,
    parse_sequence_attr,
    pk_entity,
    sequence_attr,
    sk_usage,
)
from .wire.values import Item

_EVENTS = Field("total_events")
_ALL_OLD = ("ReturnValuesOnConditionCheckFailure", "ALL_OLD")


def snapshot_key(addition: UsageAddition) -> KeyText:
    """Return the key of the snapshot that is added to."""
    window = window_key(addition.window, addition.start)
    pk = pk_entity(addition.namespace_id, addition.entity_id)
    return pk, sk_usage(addition.resource, window)


def snapshot_update(table_name: str, addition: UsageAddition) -> Update:
    """Return the parameters of an `UpdateItem`. A snapshot that has counted some of it comes
    back."""
    fixed = (("TableName", table_name), _ALL_OLD)
    return Update(fixed, snapshot_key(addition), _terms(addition))


def _terms(addition: UsageAddition) -> Iterator[Term]:
    for shard, first in addition.first_sequences().items():
        yield Field(sequence_attr(shard)).is_below_or_absent(first)
    for shard, last in addition.last_sequences().items():
        yield Field(sequence_attr(shard)).set(last)
    for attribute, value in _metadata(addition).items():
        yield Field(attribute).set_if_absent(value)
    total = addition.total()
    yield _EVENTS.add(total.events)
    for name, amount_milli in sorted(total.consumed_milli.items()):
        if amount_milli:
            yield Field(name_attr(name)).add(_tokens(amount_milli))


def _metadata(addition: UsageAddition) -> Mapping[str, str | int]:
    namespace_id, entity_id = addition.namespace_id, addition.entity_id
    resource, window = addition.resource, window_key(addition.window, addition.start)
    return {
        "entity_id": entity_id,
        "resource": resource,
        "window": addition.window,
        "window_start": iso(addition.start),
        "GSI2PK": gsi2_pk_resource(namespace_id, resource),
        "GSI2SK": gsi2_sk_usage(window, entity_id),
        "GSI4PK": namespace_id,
        "GSI4SK": gsi4_sk_usage(entity_id, resource, window),
        TTL_ATTRIBUTE: addition.expires_at_s,
    }


def _tokens(amount_milli: int) -> int | Decimal:
    """Tokens, with a fraction where a charge was divided among shards: only all of them together
    come to a whole number."""
    whole, rest = divmod(abs(amount_milli), MILLI)
    sign = "-" if amount_milli < 0 else ""
    return Decimal(f"{sign}{whole}.{rest:03}") if rest else int(f"{sign}{whole}")


def counted_sequences(item: Item | None) -> dict[int, str]:
    """Return the last sequence that a snapshot has counted of each shard. Without the check of its
    form, a damaged sequence would make the snapshot pass for one that has counted everything."""
    found: dict[int, str] = {}
    for attribute, value in (item or {}).items():
        shard = parse_sequence_attr(attribute)
        if shard is not None:
            sequence = value.get("S", "")
            if not is_sequence_text(sequence):
                raise StoredDataError(record_name(item or {}), f"{attribute} is no sequence")
            found[shard] = sequence
    return found
