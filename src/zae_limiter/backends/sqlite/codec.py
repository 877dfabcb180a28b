"""Values to rows and back. A row that cannot be read is reported by its table and key."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from ...core.audit import AuditEvent
from ...core.bucket import Bucket, BucketAddress, Cell
from ...core.exceptions import StoredDataError, ValidationError
from ...core.limit import Limit, validate_limits
from ...core.models import Entity, LimiterConfig, OnUnavailable
from ...core.rates import Rate, rate_of
from ...core.shards import MAX_SHARDS
from ...core.usage import UsageCounts
from ...core.validation import WCU
from ...core.windows import LAST_HOUR_MS
from ...ports.repository_protocol import NamespaceRecord
from ..damage import MAX_STORED_NUMBER, check_stored_numbers

T = TypeVar("T")
Row = Sequence[Any]

_LARGEST_INTEGER = 2**63 - 1
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_UNREADABLE = (
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    ValidationError,
)


Rates = tuple[tuple[str, Rate], ...]


class Shape(NamedTuple):
    """A shape is the part of a bucket that buckets with the same limits and parent share.

    `rates`: each limit by its name.
    """

    rates: Rates
    fingerprint: str
    shard: int
    shard_count: int
    parent_id: str | None
    cascade: bool
    dormant: frozenset[str]
    generation: str = ""


class BucketRow(NamedTuple):
    """A row of `buckets`. Most writes change nothing but its bucket.

    `shape`: the part that it shares with other rows. `hour_ms`: the hour of its usage.
    `counted`: its counters at the beginning of that hour, as they are stored.
    `look_at_s`: when to look whether the bucket has expired; None if it never will.
    """

    bucket: Bucket
    shape: Shape
    hour_ms: int
    counted: str
    look_at_s: int | None


BucketColumns = tuple[str, str, str, int, str, int | None]
BUCKET_COLUMNS = "state, recent, shape, usage_hour_ms, usage_counted, look_at_s"
NOTHING_COUNTED = "[0,{}]"


def read_row(table: str, key: tuple[object, ...], decode: Callable[[Row], T], row: Row) -> T:
    """Decode a row; a failure is reported as damage of the row."""
    try:
        return decode(row)
    except _UNREADABLE as error:
        raise StoredDataError(
            f"{table}{tuple(key)!r}", f"{type(error).__name__}: {error}"
        ) from error


def encode_bucket_row(item: BucketRow) -> BucketColumns:
    """Return the columns `BUCKET_COLUMNS`."""
    state, recent = encode_state(item.bucket)
    return state, recent, _encode_shape(item.shape), item.hour_ms, item.counted, item.look_at_s


def encode_state(bucket: Bucket) -> tuple[str, str]:
    """Return the columns `state` and `recent`: all that is not in the shape. Amounts may exceed
    SQLite's integers, so they are text, without JSON: every acquire passes here. The fence follows
    the operations."""
    numbers = [bucket.refilled_at_ms, bucket.acquires]
    for tokens_milli, _, consumed_milli, remainder in bucket.cells.values():
        numbers += (tokens_milli, consumed_milli, remainder)
    if bucket.expires_at_s is not None:
        numbers.append(bucket.expires_at_s)
    return " ".join(map(str, numbers)), f"{' '.join(bucket.recent)}|{bucket.fence}"


def shape_of(bucket: Bucket) -> Shape:
    """Return the shape of a bucket."""
    return Shape(
        tuple([(name, cell.rate) for name, cell in bucket.cells.items()]),
        bucket.fingerprint,
        bucket.shard,
        bucket.shard_count,
        bucket.parent_id,
        bucket.cascade,
        bucket.dormant,
        bucket.generation,
    )


@lru_cache(maxsize=1024)
def _encode_shape(shape: Shape) -> str:
    rates = [(name, *rate) for name, rate in shape.rates]
    generation = [shape.generation] if shape.generation else []
    return _encode((rates, *shape[1:-2], sorted(shape.dormant), *generation))


def look_at_s(bucket: Bucket, known_s: int | None = None) -> int | None:
    """Return the column `look_at_s`. A known time is kept while it is early enough: the lifetime
    grows with each acquire, and following it would write to the index each time."""
    expires_at_s = bucket.expires_at_s
    if expires_at_s is None:
        return None
    if known_s is not None and known_s <= expires_at_s:
        return known_s
    return min(expires_at_s, _LARGEST_INTEGER)


def decode_bucket_row(address: BucketAddress, row: Row) -> BucketRow:
    """Decode the columns `BUCKET_COLUMNS`."""
    return read_row("buckets", address, _item, row)


def _item(row: Row) -> BucketRow:
    state, recent, shape_text, hour_ms, counted, look_at_s = row
    # One comparison instead of four calls: every acquire passes here.
    if not (type(state) is type(recent) is type(shape_text) is type(counted) is str):
        raise TypeError(f"{row!r} is not all text")
    shape = _decode_shape(shape_text)
    refilled_at_ms, acquires, *amounts = numbers = list(map(int, state.split(" ")))
    if max(numbers) > MAX_STORED_NUMBER or min(numbers) < -MAX_STORED_NUMBER:
        check_stored_numbers(numbers)
    # Three numbers for each limit. One more number is the end of the lifetime.
    expires_at_s = amounts.pop() if len(amounts) % 3 else None
    operations, _, fence = recent.partition("|")
    bucket = Bucket(
        _cells(shape.rates, amounts),
        refilled_at_ms=refilled_at_ms,
        fingerprint=shape.fingerprint,
        recent=tuple(operations.split()),
        acquires=acquires,
        expires_at_s=expires_at_s,
        shard=shape.shard,
        shard_count=shape.shard_count,
        parent_id=shape.parent_id,
        cascade=shape.cascade,
        dormant=shape.dormant,
        fence=fence,
        generation=shape.generation,
    )
    return BucketRow(bucket, shape, _hour(hour_ms), counted, _maybe_integer(look_at_s))


def _cells(rates: Rates, amounts: list[int]) -> dict[str, Cell]:
    if len(amounts) != 3 * len(rates):
        raise ValueError(f"{len(rates)} limits hold {amounts}")
    amount = iter(amounts)
    cells = {}
    for name, rate in rates:
        tokens_milli, consumed_milli, remainder = next(amount), next(amount), next(amount)
        cells[name] = Cell(tokens_milli, rate, consumed_milli, remainder)
    return cells


def encode_counters(bucket: Bucket, after: Bucket) -> str:
    """Return the column `usage_counted` of an hour that begins with this bucket. A limit that is
    missing in `after` counts from zero if it comes back."""
    cells = bucket.cells
    counters_milli = {name: cells[name].consumed_milli for name in cells if name in after.cells}
    return _encode((bucket.acquires, counters_milli))


def decode_usage(address: BucketAddress, item: BucketRow) -> UsageCounts:
    """Return the usage of a row in its hour: its counters less those at the beginning of the hour.
    A counter of its own would be one more number to write with every acquire."""
    before = read_row("buckets", address, _counts, (item.counted,))
    counters_milli = before.consumed_milli
    used_milli = {
        name: cell.consumed_milli - counters_milli.get(name, 0)
        for name, cell in item.bucket.cells.items()
        if name != WCU
    }
    return UsageCounts(
        {name: milli for name, milli in used_milli.items() if milli},
        item.bucket.acquires - before.events,
    )


@lru_cache(maxsize=1024)
def _decode_shape(text: str) -> Shape:
    rates, fingerprint, shard, shard_count, parent_id, cascade, dormant, *more = json.loads(text)
    if not 0 <= _integer(shard) < _integer(shard_count) <= MAX_SHARDS:
        raise ValueError(f"no shard {shard} of {shard_count}")
    named = tuple(_rate(*rate) for rate in rates)
    if len(dict(named)) < len(named):
        raise ValueError("a limit occurs twice")
    return Shape(
        named,
        _text(fingerprint),
        shard,
        shard_count,
        _maybe_text(parent_id),
        bool(cascade),
        frozenset(map(_text, dormant)),
        *map(_text, more),
    )


def _rate(name: str, capacity_milli: int, amount_milli: int, period_ms: int) -> tuple[str, Rate]:
    if _integer(amount_milli) <= 0 or _integer(period_ms) <= 0:
        raise ValueError(f"a limit refills by {amount_milli}/{period_ms}")
    check_stored_numbers((_integer(capacity_milli), amount_milli, period_ms))
    return _text(name), rate_of(capacity_milli, amount_milli, period_ms)


def encode_counts(counts: UsageCounts) -> str:
    """Return the column `counts` of `usage`."""
    return _encode((counts.events, counts.consumed_milli))


def decode_counts(key: tuple[str, str, str, int], row: Row) -> UsageCounts:
    """Decode the column `counts`; the last part of the key is the hour."""
    return read_row("usage", key, _counts_of_hour, (key[-1], *row))


def _counts_of_hour(row: Row) -> UsageCounts:
    hour_ms, *counts = row
    _hour(hour_ms)
    return _counts(counts)


def _counts(row: Row) -> UsageCounts:
    events, consumed_milli = json.loads(_text(row[0]))
    counts = UsageCounts(_amounts(consumed_milli), _integer(events))
    check_stored_numbers((counts.events, *counts.consumed_milli.values()))
    return counts


def encode_limits_column(limits: tuple[Limit, ...] | None) -> str | None:
    """Return the column `limits` of `configs`; empty limits are none."""
    return None if not limits else _encode([limit.to_dict() for limit in limits])


def decode_config_row(key: tuple[str, str, str], row: Row) -> LimiterConfig:
    """Decode the columns of `configs` after the key."""
    return read_row("configs", key, _config, row)


def _config(row: Row) -> LimiterConfig:
    limits, inherit, on_unavailable, auto_update, strict_version, config_version = row
    return LimiterConfig(
        None if limits is None else _limits(limits),
        None if on_unavailable is None else OnUnavailable(on_unavailable).value,
        _maybe_flag(auto_update),
        _maybe_flag(strict_version),
        _integer(config_version),
        bool(_maybe_flag(inherit)),
    )


def _limits(column: object) -> tuple[Limit, ...]:
    stored = json.loads(_text(column))
    limits = [Limit.from_dict(fields) for fields in stored]
    if [limit.to_dict() for limit in limits] != stored:
        raise ValueError(f"{stored!r} is not a list of limits")
    return validate_limits(limits)


def encode_entity_row(entity: Entity) -> tuple[object, ...]:
    """Return the columns of `entities` after the namespace."""
    return (
        entity.id,
        entity.name,
        entity.parent_id,
        entity.cascade,
        encode_metadata_column(entity.metadata),
        entity.created_at,
        entity.version,
    )


def encode_metadata_column(metadata: dict[str, Any]) -> str:
    """Return the column `metadata` of `entities`."""
    return _encode(metadata)


def decode_entity_row(namespace_id: str, row: Row) -> Entity:
    """Decode the columns of `entities` after the namespace."""
    return read_row("entities", (namespace_id, row[0]), _entity, row)


def _entity(row: Row) -> Entity:
    entity_id, name, parent_id, cascade, metadata, created_at, version = row
    return Entity(
        _text(entity_id),
        _maybe_text(name),
        _maybe_text(parent_id),
        bool(_integer(cascade)),
        _map(metadata),
        _maybe_text(created_at),
        _integer(version),
    )


def encode_event_row(event: AuditEvent) -> tuple[object, ...]:
    """Return the columns of `audit` after the namespace."""
    return (
        event.entity_id,
        event.event_id,
        event.timestamp,
        event.action,
        event.principal,
        event.resource,
        _encode(event.details),
    )


def decode_event_row(namespace_id: str, row: Row) -> AuditEvent:
    """Decode the columns of `audit` after the namespace."""
    return read_row("audit", (namespace_id, *row[:2]), _event, row)


def _event(row: Row) -> AuditEvent:
    entity_id, event_id, timestamp, action, principal, resource, details = row
    return AuditEvent(
        _text(event_id),
        _text(timestamp),
        _text(action),
        _text(entity_id),
        _maybe_text(principal),
        _maybe_text(resource),
        _map(details),
    )


def encode_namespace_row(record: NamespaceRecord) -> tuple[object, ...]:
    """Return the columns of `namespaces`."""
    return (
        record.name,
        record.namespace_id,
        record.created_at,
        record.status,
        record.deleted_at,
    )


def decode_namespace_row(row: Row) -> NamespaceRecord:
    """Decode the columns of `namespaces`."""
    return read_row("namespaces", (row[1],), _namespace, row)


def _namespace(row: Row) -> NamespaceRecord:
    name, namespace_id, created_at, status, deleted_at = row
    return NamespaceRecord(
        _text(name), _text(namespace_id), _text(created_at), _text(status), _maybe_text(deleted_at)
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _maybe_text(value: object) -> str | None:
    return None if value is None else _text(value)


def _map(column: object) -> dict[str, Any]:
    content = json.loads(_text(column))
    if not isinstance(content, dict):
        raise TypeError(f"{content!r} is not a map")
    return content


def _integer(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is not an integer")
    return value


def _hour(value: object) -> int:
    hour_ms = _integer(value)
    if not 0 <= hour_ms <= LAST_HOUR_MS:
        raise ValueError(f"{hour_ms} is no hour")
    return hour_ms


def _maybe_integer(value: object) -> int | None:
    return None if value is None else _integer(value)


def _maybe_flag(value: object) -> bool | None:
    return None if value is None else bool(_integer(value))


def _amounts(value: dict[str, int]) -> dict[str, int]:
    return {name: _integer(amount) for name, amount in value.items()}
