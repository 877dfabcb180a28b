"""The attributes of a bucket item, as the writes speak of them."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from .bucket_codec import FIELDS, OPERATIONS
from .clauses import Clause, Field
from .expressions import Expression
from .schema import bucket_attr

PK, REFILLED_AT, LIMITS, SHARDS, ACQUIRES, TTL, PARENT, CASCADE, DORMANT = map(
    Field, ("PK", "rf", "cv", "shard_count", "ac", "ttl", "parent_id", "cascade", "dl")
)


class LimitFields:
    """The attributes of one limit, in the order of `FIELDS`."""

    def __init__(self, name: str) -> None:
        self.fields = tuple(Field(bucket_attr(name, field)) for field in FIELDS)
        self.tokens, self.capacity, self.amount, self.period, self.consumed, self.remainder = (
            self.fields
        )
        self.stamped = (self.capacity, self.amount, self.period, self.remainder)

    def take(self, e: Expression, value: str) -> None:
        """Have less by this, and count it as consumed."""
        self.tokens.decrease(e, value)
        self.consumed.add(e, value)


limit_fields = lru_cache(maxsize=4096)(LimitFields)


def remembering(*, is_whole: bool) -> list[tuple[Clause, type]]:
    """Two clauses, with the types of their values: make room for the id of an operation, and
    remember it. An item that is whole remembers as many as it can, so that they only move up,
    which costs servers less. Others need an empty text for what they lack."""
    room: tuple[Clause, type] = (_move_up, type(None)) if is_whole else (_make_room, str)
    return [room, (_not_done_yet, str)]


def _move_up(e: Expression, value: str) -> None:
    for older, newer in pairwise(reversed(OPERATIONS)):
        e.set(older, e.name(newer))


def _make_room(e: Expression, nothing: str) -> None:
    for older, newer in pairwise(reversed(OPERATIONS)):
        e.set(older, f"if_not_exists({e.name(newer)}, {nothing})")


def _not_done_yet(e: Expression, operation: str) -> None:
    remembered = ", ".join(e.name(name) for name in OPERATIONS)
    e.require("not done yet", f"NOT ({operation} IN ({remembered}))")
    e.set(OPERATIONS[0], operation)
