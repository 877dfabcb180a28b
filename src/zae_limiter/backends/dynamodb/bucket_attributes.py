"""The attributes of a bucket item, by what they hold.

rf            when all limits were last refilled, in milliseconds
b_{limit}_tk  tokens      b_{limit}_cp  capacity       b_{limit}_ra  refill amount
b_{limit}_rp  period, ms  b_{limit}_tc  consumed       b_{limit}_rm  remainder
cv            fingerprint of the limits the item was stamped with
dl            limits that are not in force, separated by commas
lo, l1 ...    ids of the last writes, newest first; empty where there was none
fn            fence: writes with an id before it are refused
ac            acquires admitted
gn            the split that made the item one of several; absent while it is the only one
shard_count, ttl, cascade, parent_id, entity_id, resource, and the keys
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ...core.bucket import REMEMBERED_OPERATIONS, Cell
from .expressions import PK, Clause, Field, Term
from .schema import TTL_ATTRIBUTE, bucket_attr

REFILLED_AT = Field("rf")
FINGERPRINT = Field("cv")
DORMANT = Field("dl")
ACQUIRES = Field("ac")
SHARD_COUNT = Field("shard_count")
GENERATION = Field("gn")
EXPIRES_AT = Field(TTL_ATTRIBUTE)
PARENT = Field("parent_id")
CASCADE = Field("cascade")
FENCE = Field("fn")
OPERATIONS = (Field("lo"), Field("l1"), Field("l2"), Field("l3"))
assert len(OPERATIONS) == REMEMBERED_OPERATIONS
CELL_FIELDS = ("tk", "cp", "ra", "rp", "tc", "rm")

_TAKE = Clause(SET="{0} = {0} - {a}", ADD="{1} {a}")
_TAKE_STORED = Clause(IF="{0} >= {a}", SET="{0} = {0} - {a}", ADD="{1} {a}")
_TAKE_WITHIN = Clause(IF="{0} >= {b} AND {0} <= {c}", SET="{0} = {0} - {a}", ADD="{1} {a}")
_FILL = Clause(IF="{0} >= {a}", SET="{0} = {b}, {1} = {c}")
_FILL_AND_TAKE = Clause(IF="{0} >= {a}", SET="{0} = {b}, {1} = {c}", ADD="{2} {d}")
_REMEMBER = Clause(
    IF="NOT ({a} IN ({0}, {1}, {2}, {3})) AND (attribute_not_exists({4}) OR {4} <= {a})",
    SET="{3} = if_not_exists({2}, {b}), {2} = if_not_exists({1}, {b}),"
    " {1} = if_not_exists({0}, {b}), {0} = {a}",
)
_REMEMBERED = (*OPERATIONS, FENCE)
_NEW_OR_OF_A_SPLIT = Clause(IF="(attribute_not_exists({0}) OR attribute_exists({1}))")
_STAMPED = Clause(IF="{0} = {a} AND {1} = {b}")
_STAMP = (FINGERPRINT, SHARD_COUNT)
_REFILL_SINCE = Clause(IF="attribute_not_exists({0}) AND {1} <= {a}", SET="{1} = {b}")


def remember(operation: str) -> Term:
    """Require an operation to be new and not behind the item's fence, and remember it there."""
    return _REMEMBER, _REMEMBERED, (operation, "")


def is_stamped(fingerprint: str, shard_count: int) -> Term:
    """Require the limits and the number of shards that the item was stamped with."""
    return _STAMPED, _STAMP, (fingerprint, shard_count)


def refill_where_all_are_in_force(until_ms: int, now_ms: int) -> Term:
    """Require that no limit is dormant and the last refill is not newer, and set a new one."""
    return _REFILL_SINCE, (DORMANT, REFILLED_AT), (until_ms, now_ms)


def of_generation(generation: str) -> Term:
    """Return the term that requires a generation."""
    return GENERATION.equals(generation) if generation else GENERATION.is_absent()


def is_new_or_remnant(generation: str) -> Term:
    """Return the term that requires no item, or one of another generation."""
    if generation:
        return GENERATION.differs_or_is_absent(generation)
    return _NEW_OR_OF_A_SPLIT, (PK, GENERATION), ()


class CellAttributes(NamedTuple):
    """The attributes of one limit, in the order of `CELL_FIELDS`."""

    tokens: Field
    capacity: Field
    amount: Field
    period: Field
    consumed: Field
    remainder: Field

    def take(self, amount_milli: int) -> Term:
        """Lower the balance, which must exist, and count the amount as consumed."""
        return _TAKE, (self.tokens, self.consumed), (amount_milli,)

    def take_within(self, amount_milli: int, floor_milli: int, roof_milli: int) -> Term:
        """Require a balance between floor and roof, lower it, and count the amount as consumed."""
        values = (amount_milli, floor_milli, roof_milli)
        return _TAKE_WITHIN, (self.tokens, self.consumed), values

    def fill(self, floor_milli: int, tokens_milli: int, taken_milli: int) -> Term:
        """Require the floor, set the balance, and count the amount that was taken as consumed."""
        values = (floor_milli, tokens_milli, 0)
        if not taken_milli:
            return _FILL, (self.tokens, self.remainder), values
        attributes = (self.tokens, self.remainder, self.consumed)
        return _FILL_AND_TAKE, attributes, (*values, taken_milli)

    def take_stored(self, amount_milli: int) -> Term:
        """Require the amount in the balance, lower the balance by it, and count it as consumed."""
        return _TAKE_STORED, (self.tokens, self.consumed), (amount_milli,)


@lru_cache(maxsize=4096)
def cell_attributes(limit_name: str) -> CellAttributes:
    """Return the attributes of a limit."""
    return CellAttributes(*(Field(bucket_attr(limit_name, field)) for field in CELL_FIELDS))


def cell_numbers(cell: Cell) -> tuple[int, ...]:
    """Return the numbers of a cell, in the order of `CELL_FIELDS`."""
    return cell.tokens_milli, *cell.rate, cell.consumed_milli, cell.remainder
