"""The write paths as DynamoDB requests. What each means is said in `core.writes`.

Every request carries the id of its operation and is refused on an item that remembers it,
so that one that is sent again, or arrives late, changes nothing.
"""

from __future__ import annotations

from typing import Any, assert_never

from ...core.composite import Bucket, BucketAddress, Cell
from ...core.writes import Adjust, Create, Drain, Guard, Refill, Speculate, Write, guards
from . import schema
from .bucket_codec import OPERATIONS, bucket_key, encode_bucket
from .expressions import Expression

Request = dict[str, Any]
_ALL_OLD = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}


def request_for(address: BucketAddress, write: Write) -> Request:
    """The fields of a `PutItem` (for `Create`) or an `UpdateItem`, the table aside."""
    match write:
        case Create():
            return _create(address, write)
        case Refill():
            return _update(address, _refill(write))
        case Drain() | Speculate():
            return _update(address, _take(write))
        case Adjust():
            return _update(address, _adjust(write))
        case _:
            assert_never(write)


def _create(address: BucketAddress, write: Create) -> Request:
    item = encode_bucket(address, write.bucket)
    item[OPERATIONS[0]] = {"S": write.operation}
    return {"Item": item, "ConditionExpression": "attribute_not_exists(PK)", **_ALL_OLD}


def _update(address: BucketAddress, expression: Expression) -> Request:
    return {"Key": bucket_key(address), **expression.update_request(), **_ALL_OLD}


def _expression(operation: str) -> Expression:
    """An update that is remembered by the item, which forgets the oldest it remembers."""
    e = Expression()
    nothing = e.value("")
    for older, newer in zip(OPERATIONS[1:], OPERATIONS, strict=False):
        e.set(older, f"if_not_exists({e.name(newer)}, {nothing})")
    e.set(OPERATIONS[0], e.value(operation))
    remembered = ", ".join(e.name(name) for name in OPERATIONS)
    e.require("not_done", f"NOT ({e.value(operation)} IN ({remembered}))")
    return e


def _attr(e: Expression, name: str, field: str) -> str:
    return e.name(schema.bucket_attr(name, field))


def _add_tokens(e: Expression, name: str, tokens_milli: int, consumed_milli: int) -> None:
    e.add(schema.bucket_attr(name, "tk"), tokens_milli)
    e.add(schema.bucket_attr(name, "tc"), consumed_milli)


def _take(write: Drain | Speculate) -> Expression:
    e = _expression(write.operation)
    e.require("limits", f"{e.name('cv')} = {e.value(write.fingerprint)}")
    e.require("shards", f"{e.name('shard_count')} = {e.value(write.shard_count)}")
    e.require("recent", f"{e.name('rf')} >= {e.value(write.refilled_since_ms)}")
    if isinstance(write, Speculate):
        ttl = e.name("ttl")
        now_s = e.value(write.at_ms // 1000)
        e.require("alive", f"(attribute_not_exists({ttl}) OR {ttl} > {now_s})")
    for name, amount_milli in write.takes_milli.items():
        if amount_milli:
            roof_milli = write.roofs_milli.get(name)
            e.require(f"tokens_{name}", _between(e, name, amount_milli, roof_milli))
        _add_tokens(e, name, -amount_milli, amount_milli)
    e.add("ac", write.acquires)
    return e


def _between(e: Expression, name: str, floor_milli: int, roof_milli: int | None) -> str:
    tokens = _attr(e, name, "tk")
    if roof_milli is None:
        return f"{tokens} >= {e.value(floor_milli)}"
    # DynamoDB refuses a range whose ends are the wrong way round; two comparisons may be false.
    return f"({tokens} >= {e.value(floor_milli)} AND {tokens} <= {e.value(roof_milli)})"


def _refill(write: Refill) -> Expression:
    before, after = write.before, write.after
    e = _expression(write.operation)
    e.require("rf", f"{e.name('rf')} = {e.value(before.refilled_at_ms)}")
    e.require("limits", _same_or_absent(e, "cv", before.fingerprint, ""))
    e.require("shards", _same_or_absent(e, "shard_count", before.shard_count, 1))
    for name, guard in guards(write).items():
        _guard_limit(e, name, guard)
    for name, planned in after.cells.items():
        seen = before.cells.get(name)
        if seen is None:
            _new_limit(e, name, planned)
        else:
            _move_limit(e, name, seen, planned)
    for name in before.cells.keys() - after.cells.keys():
        for field in Cell._fields:
            e.remove(schema.bucket_attr(name, _FIELD[field]))
    _item_fields(e, before, after)
    return e


_FIELD = {
    "tokens_milli": "tk",
    "capacity_milli": "cp",
    "refill_amount_milli": "ra",
    "refill_period_ms": "rp",
    "consumed_milli": "tc",
    "remainder": "rm",
}


def _same_or_absent(e: Expression, attribute: str, value: Any, absent: Any) -> str:
    same = f"{e.name(attribute)} = {e.value(value)}"
    if value != absent:
        return same
    return f"({same} OR attribute_not_exists({e.name(attribute)}))"


def _new_limit(e: Expression, name: str, planned: Cell) -> None:
    for field, value in planned._asdict().items():
        e.set(schema.bucket_attr(name, _FIELD[field]), e.value(value))


def _guard_limit(e: Expression, name: str, guard: Guard) -> None:
    tokens = _attr(e, name, "tk")
    e.require(f"roof_{name}", f"{tokens} <= {e.value(guard.roof_milli)}")
    if guard.floor_milli is not None:
        e.require(f"floor_{name}", f"{tokens} >= {e.value(guard.floor_milli)}")
    if guard.remainder:
        # Where it was nothing it still is: only a refund that fills the limit resets it.
        e.require(f"remainder_{name}", f"{_attr(e, name, 'rm')} = {e.value(guard.remainder)}")


def _move_limit(e: Expression, name: str, seen: Cell, planned: Cell) -> None:
    _add_tokens(
        e,
        name,
        planned.tokens_milli - seen.tokens_milli,
        planned.consumed_milli - seen.consumed_milli,
    )
    for field in ("capacity_milli", "refill_amount_milli", "refill_period_ms", "remainder"):
        if getattr(planned, field) != getattr(seen, field):
            e.set(schema.bucket_attr(name, _FIELD[field]), e.value(getattr(planned, field)))


def _item_fields(e: Expression, before: Bucket, after: Bucket) -> None:
    e.set("rf", e.value(after.refilled_at_ms))
    e.add("ac", after.acquires - before.acquires)
    if after.fingerprint != before.fingerprint:
        e.set("cv", e.value(after.fingerprint))
    if after.shard_count != before.shard_count:
        e.set("shard_count", e.value(after.shard_count))
    if after.cascade != before.cascade:
        e.set("cascade", e.value(after.cascade))
    for attribute, old, new in (
        ("ttl", before.expires_at_s, after.expires_at_s),
        ("parent_id", before.parent_id, after.parent_id),
    ):
        if new is None and old is not None:
            e.remove(attribute)
        elif new != old:
            e.set(attribute, e.value(new))


def _adjust(write: Adjust) -> Expression:
    e = _expression(write.operation)
    e.require("exists", f"attribute_exists({e.name('PK')})")
    gives_back = any(delta < 0 for delta in write.deltas_milli.values())
    if gives_back:
        assert write.seen is not None
        e.require("limits", _same_or_absent(e, "cv", write.seen.fingerprint, ""))
        e.require("shards", _same_or_absent(e, "shard_count", write.seen.shard_count, 1))
    for name, delta_milli in write.deltas_milli.items():
        if delta_milli < 0:
            assert write.seen is not None
            _give_back(e, name, -delta_milli, write.seen)
        else:
            _add_tokens(e, name, -delta_milli, delta_milli)
    e.add("ac", write.acquires)
    return e


def _give_back(e: Expression, name: str, amount_milli: int, seen: Bucket) -> None:
    """Up to the ceiling. Which of the two forms applies is a guess from the last image; the
    condition makes sure that it is the right one."""
    ceiling_milli = seen.ceiling_milli(name)
    tokens = _attr(e, name, "tk")
    full_from = e.value(ceiling_milli - amount_milli)
    if seen.cells[name].tokens_milli + amount_milli < ceiling_milli:
        e.require(f"below_{name}", f"{tokens} < {full_from}")
        _add_tokens(e, name, amount_milli, -amount_milli)
        return
    e.require(f"full_{name}", f"{tokens} >= {full_from}")
    e.set(schema.bucket_attr(name, "tk"), e.value(ceiling_milli))
    e.set(schema.bucket_attr(name, "rm"), e.value(0))
    e.add(schema.bucket_attr(name, "tc"), -amount_milli)


def known_part(write: Adjust, seen: Bucket) -> Adjust:
    """The adjustment as it concerns an item: limits that it does not have fall away."""
    known = {name: d for name, d in write.deltas_milli.items() if name in seen.cells}
    return write._replace(deltas_milli=known, seen=seen)
