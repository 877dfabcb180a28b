"""The five writes as DynamoDB requests. `core.writes` says what each of them means.

Every request carries its operation id, an idempotency key. An item that remembers the id refuses
the request, so a request that is sent again, or arrives late, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, assert_never

from ...core.apply import created, owed_cells
from ...core.bucket import Bucket, BucketAddress, Cell
from ...core.idempotency import fence_past
from ...core.writes import Adjust, Create, Fill, Guard, Refill, Take, guards
from .bucket_attributes import (
    ACQUIRES,
    CASCADE,
    DORMANT,
    EXPIRES_AT,
    FENCE,
    FINGERPRINT,
    GENERATION,
    OPERATIONS,
    PARENT,
    REFILLED_AT,
    SHARD_COUNT,
    CellAttributes,
    cell_attributes,
    cell_numbers,
    is_new_or_remnant,
    is_stamped,
    of_generation,
    refill_where_all_are_in_force,
    remember,
)
from .bucket_codec import bucket_key_text, dormant_text, encode_bucket_item
from .expressions import IS_NEW, PK, Fixed, Term, Update, request_fields

Change = Take | Fill | Refill | Adjust
ALL_OLD = ("ReturnValuesOnConditionCheckFailure", "ALL_OLD")
ALL_NEW = ("ReturnValues", "ALL_NEW")


def creation(table_name: str, address: BucketAddress, write: Create) -> dict[str, Any]:
    """Return the parameters of a `PutItem`. An item that exists already comes back; a remnant of
    another generation is replaced."""
    item = encode_bucket_item(address, created(write))
    item[OPERATIONS[0]] = {"S": write.operation}
    condition = (is_new_or_remnant(write.bucket.generation),) if address.shard else IS_NEW
    return {"TableName": table_name, "Item": item, **request_fields(condition), **dict([ALL_OLD])}


def fence(table_name: str, address: BucketAddress, operation: str) -> Update:
    """Return the parameters of an `UpdateItem` that moves the fence. An item whose fence is further
    comes back, too."""
    past = fence_past(operation)
    terms = [PK.exists(), FENCE.is_below_or_absent(past), FENCE.set(past)]
    return Update(_fixed(table_name, ALL_NEW), bucket_key_text(address), terms)


def change(
    table_name: str, address: BucketAddress, write: Change, *more: tuple[str, str]
) -> Update:
    """Return the parameters of an `UpdateItem`, and `more`. An item that refuses comes back."""
    terms = [remember(write.operation), *_terms(write)]
    return Update(_fixed(table_name, *more), bucket_key_text(address), terms)


@lru_cache(maxsize=64)
def _fixed(table_name: str, *more: tuple[str, str]) -> Fixed:
    return (("TableName", table_name), ALL_OLD, *more)


def _terms(write: Change) -> Iterable[Term]:
    match write:
        case Take():
            return _take(write)
        case Fill():
            return _fill(write)
        case Refill():
            return _refill(write)
        case Adjust():
            return _adjust(write)
        case _:
            assert_never(write)


def _take(write: Take) -> Iterable[Term]:
    terms = [*_is_part(write), REFILLED_AT.at_least(write.refilled_from_ms)]
    if write.refilled_until_ms is not None:
        terms.append(REFILLED_AT.at_most(write.refilled_until_ms))
    if write.unexpired:
        terms.append(EXPIRES_AT.is_above_or_absent(write.at_ms // 1000))
    floors_milli, roofs_milli = write.floors_milli, write.roofs_milli
    for name, amount_milli in write.takes_milli.items():
        if amount_milli:
            cell, floor_milli = cell_attributes(name), floors_milli[name]
            if name in roofs_milli:
                terms.append(cell.take_within(amount_milli, floor_milli, roofs_milli[name]))
            elif floor_milli == amount_milli:
                terms.append(cell.take_stored(amount_milli))
            else:
                terms += cell.tokens.at_least(floor_milli), cell.take(amount_milli)
    if write.acquires:
        terms.append(ACQUIRES.add(write.acquires))
    return terms


def _is_part(write: Take | Fill) -> list[Term]:
    terms = [is_stamped(write.fingerprint, write.shard_count)]
    if write.shard_count > 1:
        # An item that is the only one has no generation.
        terms.append(of_generation(write.generation))
    return terms


def _fill(write: Fill) -> Iterable[Term]:
    terms = [
        *_is_part(write),
        refill_where_all_are_in_force(write.refilled_by_ms, write.at_ms),
        EXPIRES_AT.set_or_remove(write.expires_at_s),
        PARENT.set_or_remove(write.parent_id),
        CASCADE.set(write.cascade),
    ]
    floors_milli, takes_milli = write.floors_milli, write.takes_milli
    for name, tokens_milli in write.leaves_milli.items():
        taken_milli = takes_milli.get(name, 0)
        terms.append(cell_attributes(name).fill(floors_milli[name], tokens_milli, taken_milli))
    if write.acquires:
        terms.append(ACQUIRES.add(write.acquires))
    return terms


def _acquired(acquires: int) -> Iterator[Term]:
    if acquires:
        yield ACQUIRES.add(acquires)


def _refill(write: Refill) -> Iterator[Term]:
    before, after = write.before, write.after
    yield REFILLED_AT.equals(before.refilled_at_ms)
    yield REFILLED_AT.set(after.refilled_at_ms)
    yield from _same(before)
    yield from _dormant(before)
    for name, guard in guards(write).items():
        yield from _guarded(cell_attributes(name), guard)
    for name, planned in after.cells.items():
        yield from _planned(cell_attributes(name), before.cells.get(name), planned)
    for name in before.cells:
        if name not in after.cells:
            yield from (field.remove() for field in cell_attributes(name))
    yield from _acquired(after.acquires - before.acquires)
    yield from _changed(before, after)


def _same(seen: Bucket) -> Iterator[Term]:
    """Require the fingerprint, the shard count and the generation of an image."""
    # An item of an older client has neither attribute.
    stamped = FINGERPRINT.equals if seen.fingerprint else FINGERPRINT.equals_or_is_absent
    yield stamped(seen.fingerprint)
    split = SHARD_COUNT.equals if seen.shard_count > 1 else SHARD_COUNT.equals_or_is_absent
    yield split(seen.shard_count)
    if seen.shard_count > 1:
        yield of_generation(seen.generation)


def _guarded(cell: CellAttributes, guard: Guard) -> Iterator[Term]:
    if guard.floor_milli == guard.roof_milli:
        yield cell.tokens.equals(guard.roof_milli)
    else:
        yield cell.tokens.at_most(guard.roof_milli)
        if guard.floor_milli is not None:
            yield cell.tokens.at_least(guard.floor_milli)
    if guard.remainder:
        # A remainder of zero needs no condition: it stays zero until the next refill.
        yield cell.remainder.equals(guard.remainder)


def _planned(cell: CellAttributes, seen: Cell | None, planned: Cell) -> Iterator[Term]:
    """Move balances by the difference, and replace other numbers that differ."""
    if seen is None:
        numbers = zip(cell, cell_numbers(planned), strict=True)
        yield from (field.set(number) for field, number in numbers)
        return
    tokens_milli = planned.tokens_milli - seen.tokens_milli
    yield from _moved(cell, tokens_milli, planned.consumed_milli - seen.consumed_milli)
    stamped = (cell.capacity, cell.amount, cell.period, cell.remainder)
    old, new = (*seen.rate, seen.remainder), (*planned.rate, planned.remainder)
    for field, was, number in zip(stamped, old, new, strict=True):
        if number != was:
            yield field.set(number)


def _moved(cell: CellAttributes, tokens_milli: int, consumed_milli: int) -> Iterator[Term]:
    if tokens_milli:
        yield cell.tokens.add(tokens_milli)
    if consumed_milli:
        yield cell.consumed.add(consumed_milli)


def _changed(before: Bucket, after: Bucket) -> Iterator[Term]:
    """Replace the attributes of the item itself that differ."""
    for field, old, new in (
        (FINGERPRINT, before.fingerprint, after.fingerprint),
        (SHARD_COUNT, before.shard_count, after.shard_count),
        (GENERATION, before.generation or None, after.generation or None),
        (CASCADE, before.cascade, after.cascade),
        (EXPIRES_AT, before.expires_at_s, after.expires_at_s),
        (PARENT, before.parent_id, after.parent_id),
        (DORMANT, dormant_text(before), dormant_text(after)),
    ):
        if new != old:
            yield field.set_or_remove(new)


def _adjust(write: Adjust) -> Iterator[Term]:
    yield PK.exists()
    if write.generation is not None:
        yield of_generation(write.generation)
    if any(delta_milli < 0 for delta_milli in write.deltas_milli.values()):
        assert write.seen is not None
        yield from _same(write.seen)
    owed = {} if write.seen is None else owed_cells(write, write.seen)
    if owed:
        assert write.seen is not None
        yield from _owed(write.seen, owed)
    for name, delta_milli in write.deltas_milli.items():
        if name in owed:
            continue
        if delta_milli < 0:
            assert write.seen is not None
            yield from _given_back(name, -delta_milli, write.seen)
        else:
            # Without this, a limit that was removed meanwhile would come back as a balance alone.
            yield cell_attributes(name).capacity.exists()
            yield from _moved(cell_attributes(name), -delta_milli, delta_milli)
    yield from _acquired(write.acquires)


def _given_back(name: str, amount_milli: int, seen: Bucket) -> Iterator[Term]:
    """Give back up to the ceiling. The image decides between adding and filling; the condition
    refuses the write if the image was stale."""
    cell, ceiling_milli = cell_attributes(name), seen.ceiling_milli(name)
    full_from_milli = ceiling_milli - amount_milli
    if seen.cells[name].tokens_milli < full_from_milli:
        yield cell.tokens.below(full_from_milli)
        yield from _moved(cell, amount_milli, -amount_milli)
        return
    yield cell.tokens.at_least(full_from_milli)
    yield cell.tokens.set(ceiling_milli)
    yield cell.remainder.set(0)
    yield cell.consumed.add(-amount_milli)


def _owed(seen: Bucket, owed: Mapping[str, Cell]) -> Iterator[Term]:
    """Put dormant limits with their debt into an item that must be as it was seen."""
    yield REFILLED_AT.equals(seen.refilled_at_ms)
    yield from _dormant(seen)
    yield DORMANT.set(dormant_text(seen._replace(dormant=seen.dormant.union(owed))))
    for name, cell in owed.items():
        yield cell_attributes(name).capacity.is_absent()
        yield from _planned(cell_attributes(name), None, cell)


def _dormant(seen: Bucket) -> Iterator[Term]:
    """Require the dormant limits of an image."""
    dormant = dormant_text(seen)
    yield DORMANT.equals(dormant) if dormant else DORMANT.is_absent()


def applicable(write: Adjust, seen: Bucket) -> Adjust:
    """Return the adjustment without limits that the item does not hold and cannot come to hold."""
    held = seen.cells.keys() | owed_cells(write, seen).keys()
    if write.seen is seen and write.deltas_milli.keys() <= held:
        return write
    known = {name: d for name, d in write.deltas_milli.items() if name in held}
    return write._replace(deltas_milli=known, seen=seen)
