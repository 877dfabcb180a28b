"""The write paths as DynamoDB requests. What each means is said in `core.writes`.

Every request carries the id of its operation and is refused on an item that remembers it,
so that one that is sent again, or arrives late, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_never

from ...core.bucket import Bucket, BucketAddress, Cell
from ...core.writes import Adjust, Create, Fill, Guard, Refill, Take, guards
from .bucket_codec import (
    OPERATIONS,
    bucket_key_text,
    cell_fields,
    dormant_text,
    encode_bucket,
)
from .bucket_fields import (
    ACQUIRES,
    CASCADE,
    DORMANT,
    LIMITS,
    PARENT,
    PK,
    REFILLED_AT,
    SHARDS,
    TTL,
    LimitFields,
    limit_fields,
    remembering,
)
from .clauses import Clause, Clauses, Update, Value
from .fillings import filling
from .takings import taking

Taking = Take | Fill
Change = Taking | Refill | Adjust
Pair = tuple[str, str]
Terms = Iterator[tuple[Clause, Value]]
_ALL_OLD = ("ReturnValuesOnConditionCheckFailure", "ALL_OLD")
ALL_NEW = ("ReturnValues", "ALL_NEW")


def creation(table_name: str, address: BucketAddress, write: Create) -> dict[str, Any]:
    """The parameters of a `PutItem`. The item that is in the way comes back."""
    item = encode_bucket(address, write.bucket)
    item[OPERATIONS[0]] = {"S": write.operation}
    return {
        "TableName": table_name,
        "Item": item,
        "ConditionExpression": "attribute_not_exists(PK)",
        **dict([_ALL_OLD]),
    }


def change(
    table_name: str, address: BucketAddress, write: Change, *more: Pair, is_whole: bool = False
) -> Update:
    """The parameters of an `UpdateItem`, and `more`. An item that does not fit comes back.
    Those of a taking may make no sense to one that is not whole, if it is said to be."""
    fixed = (("TableName", table_name), _ALL_OLD, *more)
    key = bucket_key_text(address)
    if isinstance(write, Take):
        return taking(fixed, key, write, is_whole=is_whole)
    if isinstance(write, Fill):
        return filling(fixed, key, write, is_whole=is_whole)
    return Update.of(fixed, key, [*_remembered(write), *_clauses(write)])


def _remembered(write: Refill | Adjust) -> Clauses:
    (make_room, _), (remember, _) = remembering(is_whole=False)
    return [(make_room, ""), (remember, write.operation)]


def _clauses(write: Refill | Adjust) -> Terms:
    match write:
        case Refill():
            return _refill(write)
        case Adjust():
            return _adjust(write)
        case _:
            assert_never(write)


def _acquired(acquires: int) -> Terms:
    if acquires:
        yield ACQUIRES.add, acquires


def _refill(write: Refill) -> Terms:
    before, after = write.before, write.after
    yield REFILLED_AT.equals, before.refilled_at_ms
    yield REFILLED_AT.set, after.refilled_at_ms
    yield from _same(before)
    dormant = dormant_text(before)
    yield (DORMANT.equals if dormant else DORMANT.is_absent), dormant
    for name, guard in guards(write).items():
        yield from _guarded(limit_fields(name), guard)
    for name, planned in after.cells.items():
        yield from _planned(limit_fields(name), before.cells.get(name), planned)
    for name in before.cells:
        if name not in after.cells:
            yield from ((field.remove, None) for field in limit_fields(name).fields)
    yield from _acquired(after.acquires - before.acquires)
    yield from _changed(before, after)


def _same(seen: Bucket) -> Terms:
    """The item carries the limits and the shards that were seen, if any were."""
    limits = LIMITS.equals if seen.fingerprint else LIMITS.equals_or_is_absent
    yield limits, seen.fingerprint
    shards = SHARDS.equals if seen.shard_count > 1 else SHARDS.equals_or_is_absent
    yield shards, seen.shard_count


def _guarded(limit: LimitFields, guard: Guard) -> Terms:
    yield limit.tokens.at_most, guard.roof_milli
    if guard.floor_milli is not None:
        yield limit.tokens.at_least, guard.floor_milli
    if guard.remainder:
        # Where it was nothing it still is: only a refund that fills the limit resets it.
        yield limit.remainder.equals, guard.remainder


def _planned(limit: LimitFields, seen: Cell | None, planned: Cell) -> Terms:
    """Balances move by the difference; the rest is replaced where it differs."""
    if seen is None:
        yield from zip((field.set for field in limit.fields), cell_fields(planned), strict=True)
        return
    tokens_milli = planned.tokens_milli - seen.tokens_milli
    yield from _moved(limit, tokens_milli, planned.consumed_milli - seen.consumed_milli)
    old, new = (*seen.rate, seen.remainder), (*planned.rate, planned.remainder)
    for field, was, value in zip(limit.stamped, old, new, strict=True):
        if value != was:
            yield field.set, value


def _moved(limit: LimitFields, tokens_milli: int, consumed_milli: int) -> Terms:
    if tokens_milli:
        yield limit.tokens.add, tokens_milli
    if consumed_milli:
        yield limit.consumed.add, consumed_milli


def _changed(before: Bucket, after: Bucket) -> Terms:
    """What the item says of itself, where that differs."""
    for field, old, new in (
        (LIMITS, before.fingerprint, after.fingerprint),
        (SHARDS, before.shard_count, after.shard_count),
        (CASCADE, before.cascade, after.cascade),
        (TTL, before.expires_at_s, after.expires_at_s),
        (PARENT, before.parent_id, after.parent_id),
        (DORMANT, dormant_text(before), dormant_text(after)),
    ):
        if new != old:
            yield (field.remove if new is None else field.set), new


def _adjust(write: Adjust) -> Terms:
    yield PK.exists, None
    if any(delta_milli < 0 for delta_milli in write.deltas_milli.values()):
        assert write.seen is not None
        yield from _same(write.seen)
    for name, delta_milli in write.deltas_milli.items():
        if delta_milli < 0:
            assert write.seen is not None
            yield from _given_back(name, -delta_milli, write.seen)
        else:
            # A limit that has gone since it was seen must not come back as a balance alone.
            yield limit_fields(name).capacity.exists, None
            yield from _moved(limit_fields(name), -delta_milli, delta_milli)
    yield from _acquired(write.acquires)


def _given_back(name: str, amount_milli: int, seen: Bucket) -> Terms:
    """Up to the ceiling. Which of the two forms applies is a guess from the last image; the
    condition makes sure that it is the right one."""
    limit, ceiling_milli = limit_fields(name), seen.ceiling_milli(name)
    full_from_milli = ceiling_milli - amount_milli
    if seen.cells[name].tokens_milli < full_from_milli:
        yield limit.tokens.below, full_from_milli
        yield from _moved(limit, amount_milli, -amount_milli)
        return
    yield limit.tokens.at_least, full_from_milli
    yield limit.tokens.set, ceiling_milli
    yield limit.remainder.set, 0
    yield limit.consumed.add, -amount_milli


def known_part(write: Adjust, seen: Bucket) -> Adjust:
    """The adjustment as it concerns an item: limits that it does not have fall away."""
    if write.seen is seen and write.deltas_milli.keys() <= seen.cells.keys():
        return write
    known = {name: d for name, d in write.deltas_milli.items() if name in seen.cells}
    return write._replace(deltas_milli=known, seen=seen)
