"""Takings of what a bucket holds: what most requests are.

There are few forms of them, though there are many takings. Most answers need to tell only
what has changed: where a taking concerns all limits, the rest is known from the image that
it was planned on, but for what a refill changes. So that is asked for as well: what is said
to change comes back, also where it stays the same. An item that lacks some of it makes such
a request invalid.
"""

from __future__ import annotations

from functools import lru_cache

from ...core.composite import Bucket
from ...core.naming import WCU
from ...core.writes import Drain, Speculate
from .bucket_fields import (
    ACQUIRES,
    LIMITS,
    REFILLED_AT,
    SHARDS,
    TTL,
    forget_oldest,
    limit_fields,
    not_done_yet,
    shift,
)
from .clauses import Clause, Fixed, Form, KeyText, Update, Value
from .expressions import Expression

Names = tuple[str, ...]
_NONE = type(None)


def taking(fixed: Fixed, key: KeyText, write: Drain | Speculate, *, asks: bool) -> Update:
    """The request. `asks`: for what a refill changes, where only changes come back."""
    names = tuple([name for name, amount_milli in write.takes_milli.items() if amount_milli])
    roofed = tuple(write.roofs_milli)
    form = _form(fixed, isinstance(write, Speculate), names, roofed, write.acquires > 0, asks)
    return Update(form, key, _values(write, asks=asks))


@lru_cache(maxsize=1024)
def _form(
    fixed: Fixed, is_unseen: bool, names: Names, roofed: Names, counts: bool, asks: bool
) -> Form:
    first: tuple[Clause, type] = (_asking(names, counts), _NONE) if asks else (forget_oldest, str)
    parts: list[Clause] = [SHARDS.equals, REFILLED_AT.at_least]
    if is_unseen:
        parts.append(TTL.is_absent_or_above)
    for name in names:
        limit = limit_fields(name)
        parts += (limit.take, limit.tokens.add)
        if name in roofed:
            parts.append(limit.tokens.at_most)
    if counts:
        parts.append(ACQUIRES.add)
    numbers = [(part, int) for part in parts]
    clauses = [first, (not_done_yet, str), (LIMITS.equals, str), *numbers]
    return Form(fixed, *zip(*clauses, strict=True))


def _asking(names: Names, counts: bool) -> Clause:
    def ask(e: Expression, value: str) -> None:
        shift(e, value)
        REFILLED_AT.keep(e, value)
        for name in names:
            # An item's own writes refill without a remainder.
            if name != WCU:
                limit_fields(name).remainder.keep(e, value)
        if not counts:
            ACQUIRES.keep(e, value)

    return ask


def _values(write: Drain | Speculate, *, asks: bool) -> list[Value]:
    """What goes into the blanks of the form, in its order."""
    values: list[Value] = [None if asks else "", write.operation, write.fingerprint]
    values += (write.shard_count, write.refilled_since_ms)
    if isinstance(write, Speculate):
        values.append(write.at_ms // 1000)
    roofs_milli = write.roofs_milli
    for name, amount_milli in write.takes_milli.items():
        if amount_milli:
            values += (amount_milli, -amount_milli)
            if name in roofs_milli:
                values.append(roofs_milli[name])
    if write.acquires:
        values.append(write.acquires)
    return values


def concerns_all(write: Drain, seen: Bucket) -> bool:
    """Whether it takes from all limits of the bucket."""
    takes_milli = write.takes_milli
    return seen.cells.keys() == takes_milli.keys() and all(takes_milli.values())
