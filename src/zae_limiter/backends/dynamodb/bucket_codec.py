"""Bucket items, from and to what DynamoDB stores: `bucket_attributes` has their legend.

An item of an older client lacks fingerprint, remainders, acquires and operations. It is stamped
afresh when it is next used.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ...core.bucket import Bucket, BucketAddress, Cell
from ...core.exceptions import StoredDataError
from ...core.rates import Rate, rate_of
from ...core.shards import MAX_SHARDS
from ..damage import MAX_STORED_NUMBER, check_stored_numbers
from . import schema
from .bucket_attributes import (
    ACQUIRES,
    CASCADE,
    CELL_FIELDS,
    DORMANT,
    EXPIRES_AT,
    FENCE,
    FINGERPRINT,
    GENERATION,
    OPERATIONS,
    PARENT,
    REFILLED_AT,
    SHARD_COUNT,
    cell_attributes,
    cell_numbers,
)
from .wire.values import Item, to_item

_REQUIRED = 4
_SHARD_COUNTS = frozenset(1 << power for power in range(MAX_SHARDS.bit_length()))


def bucket_key(address: BucketAddress) -> dict[str, Any]:
    """Return the key of a bucket item, as DynamoDB takes it."""
    return schema.key(*bucket_key_text(address))


def bucket_key_text(address: BucketAddress) -> tuple[str, str]:
    """Return the key of a bucket item, as plain text."""
    return schema.pk_bucket(*address), schema.sk_state()


def address_of(pk: str) -> BucketAddress:
    """Return the address of the bucket item under a partition key."""
    return BucketAddress(*schema.parse_bucket_pk(pk))


def encode_bucket_item(address: BucketAddress, bucket: Bucket) -> Item:
    """Return the whole item."""
    namespace_id, entity_id, resource, shard = address
    values: dict[str, Any] = {
        "PK": schema.pk_bucket(*address),
        "SK": schema.sk_state(),
        "entity_id": entity_id,
        "resource": resource,
        REFILLED_AT: bucket.refilled_at_ms,
        SHARD_COUNT: bucket.shard_count,
        CASCADE: bucket.cascade,
        FINGERPRINT: bucket.fingerprint,
        ACQUIRES: bucket.acquires,
        "GSI2PK": schema.gsi2_pk_resource(namespace_id, resource),
        "GSI2SK": schema.gsi2_sk_bucket(entity_id, shard),
        "GSI3PK": schema.gsi3_pk_entity(namespace_id, entity_id),
        "GSI3SK": schema.gsi3_sk_bucket(resource, shard),
        "GSI4PK": namespace_id,
        "GSI4SK": schema.gsi4_sk_bucket(entity_id, resource, shard),
        **dict(zip(OPERATIONS, bucket.recent, strict=False)),
    }
    if bucket.parent_id is not None:
        values[PARENT] = bucket.parent_id
    if bucket.expires_at_s is not None:
        values[EXPIRES_AT] = bucket.expires_at_s
    if bucket.fence:
        values[FENCE] = bucket.fence
    if bucket.generation:
        values[GENERATION] = bucket.generation
    if bucket.dormant:
        values[DORMANT] = dormant_text(bucket)
    for name, cell in bucket.cells.items():
        values |= zip(cell_attributes(name), cell_numbers(cell), strict=True)
    return to_item(values)


def dormant_text(bucket: Bucket) -> str | None:
    """Return the attribute for dormant limits, if there are any."""
    return ",".join(sorted(bucket.dormant)) or None


def decode_bucket_item(address: BucketAddress, item: Item) -> Bucket:
    """Return the bucket, or raise `StoredDataError` with the reason why the item is none."""
    try:
        return _decode(address, item)
    except (KeyError, TypeError, ValueError) as error:
        reason = _misfit(item) or str(error)
        raise StoredDataError(f"bucket {schema.pk_bucket(*address)}", reason) from error


_KINDS: dict[str, str] = {
    REFILLED_AT: "N",
    SHARD_COUNT: "N",
    ACQUIRES: "N",
    EXPIRES_AT: "N",
    FINGERPRINT: "S",
    DORMANT: "S",
    FENCE: "S",
    GENERATION: "S",
    CASCADE: "BOOL",
    **dict.fromkeys(OPERATIONS, "S"),
}
_KIND_NAMES = {"N": "a whole number of at most 30 digits", "S": "text", "BOOL": "true or false"}


def _misfit(item: Item) -> str | None:
    """Return what is wrong with an attribute that is not of its kind, if there is one."""
    for attribute, value in item.items():
        kind = "N" if _place(attribute) else _KINDS.get(attribute)
        if kind is not None and not _is_of(kind, value):
            return f"{attribute} is {next(iter(value.values()))!r}, not {_KIND_NAMES[kind]}"
    return None


def _is_of(kind: str, value: Mapping[str, Any]) -> bool:
    if kind != "N":
        return kind in value
    try:
        return abs(int(value["N"])) <= MAX_STORED_NUMBER
    except (KeyError, ValueError):
        return False


# Plain text: a dictionary finds it faster than a `Field`, and every acquire passes here.
_RF, _SHARDS, _CV, _AC, _TTL, _PARENT, _CASCADE, _DL, _FN, _GN = map(
    str,
    (
        REFILLED_AT,
        SHARD_COUNT,
        FINGERPRINT,
        ACQUIRES,
        EXPIRES_AT,
        PARENT,
        CASCADE,
        DORMANT,
        FENCE,
        GENERATION,
    ),
)
_OPERATIONS = [str(field) for field in OPERATIONS]


def _decode(address: BucketAddress, item: Item) -> Bucket:
    if _RF not in item:
        raise ValueError(f"{_RF} is missing")
    shard_count = int(item[_SHARDS]["N"]) if _SHARDS in item else 1
    if shard_count not in _SHARD_COUNTS or address.shard >= shard_count:
        raise ValueError(f"there is no shard {address.shard} of {shard_count}")
    cells = _decode_cells(item)
    refilled_at_ms = int(item[_RF]["N"])
    if not -MAX_STORED_NUMBER <= refilled_at_ms <= MAX_STORED_NUMBER:
        check_stored_numbers([refilled_at_ms])
    return Bucket(
        cells,
        refilled_at_ms=refilled_at_ms,
        fingerprint=item[_CV]["S"] if _CV in item else "",
        recent=tuple([item[o]["S"] for o in _OPERATIONS if o in item and item[o]["S"]]),
        acquires=int(item[_AC]["N"]) if _AC in item else 0,
        expires_at_s=int(item[_TTL]["N"]) if _TTL in item else None,
        shard=address.shard,
        shard_count=shard_count,
        parent_id=item[_PARENT].get("S") if _PARENT in item else None,
        cascade=item[_CASCADE]["BOOL"] if _CASCADE in item else False,
        dormant=_names(item[_DL]["S"]) & cells.keys() if _DL in item else frozenset(),
        fence=item[_FN]["S"] if _FN in item else "",
        generation=item[_GN]["S"] if _GN in item else "",
    )


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split(","))


def _decode_cells(item: Item) -> dict[str, Cell]:
    cells = {}
    for name, (tk, cp, ra, rp, tc, rm) in _layout(frozenset(item)):
        rate = _rate(item[cp]["N"], amount := item[ra]["N"], period := item[rp]["N"])
        if rate is None:
            raise ValueError(f"{name} never refills: {ra} is {amount}, {rp} is {period}")
        consumed = int(item[tc]["N"]) if tc else 0
        remainder = int(item[rm]["N"]) if rm else 0
        numbers = (int(item[tk]["N"]), consumed, remainder)
        if max(numbers) > MAX_STORED_NUMBER or min(numbers) < -MAX_STORED_NUMBER:
            check_stored_numbers(numbers)
        cells[name] = Cell(numbers[0], rate, consumed, remainder)
    return cells


# Buckets with the same limit share its rate, so its numbers are read once.
@lru_cache(maxsize=4096)
def _rate(capacity_milli: str, amount_milli: str, period_ms: str) -> Rate | None:
    """Return the rate of a limit, or None if it never refills."""
    rate = rate_of(int(capacity_milli), int(amount_milli), int(period_ms))
    check_stored_numbers(rate)
    return rate if rate.amount_milli > 0 and rate.period_ms > 0 else None


@lru_cache(maxsize=1024)
def _layout(attributes: frozenset[str]) -> list[tuple[str, list[str]]]:
    """Return the limits of an item with these attributes, and the attributes of each limit. Items
    with the same limits share the result."""
    found = {place for place in map(_place, attributes) if place is not None}
    names = {name for name, _ in found}
    # Another client may have stored the parameters of a limit that has no balance yet.
    drawn = [name for name in sorted(names) if found & {(name, "tk"), (name, "tc")}]
    return [(name, _places(name, attributes)) for name in drawn]


def _places(name: str, attributes: frozenset[str]) -> list[str]:
    wanted = cell_attributes(name)
    for required in wanted[:_REQUIRED]:
        if required not in attributes:
            raise ValueError(f"{required} is missing")
    # Plain text: a dictionary finds it faster than a `Field`.
    return [str(place) if place in attributes else "" for place in wanted]


def _place(attribute: str) -> tuple[str, str] | None:
    """Return limit and field of an attribute, if it belongs to a limit."""
    parsed = schema.parse_bucket_attr(attribute)
    return parsed if parsed is not None and parsed[1] in CELL_FIELDS else None
