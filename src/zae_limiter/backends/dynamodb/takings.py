"""Takings of what a bucket holds: what most requests are.

There are few forms of them, though there are many takings.
"""

from __future__ import annotations

from functools import lru_cache

from ...core.writes import Take
from .bucket_fields import (
    ACQUIRES,
    LIMITS,
    REFILLED_AT,
    SHARDS,
    TTL,
    limit_fields,
    remembering,
)
from .clauses import Clause, Fixed, Form, KeyText, Update, Value

Names = tuple[str, ...]


def taking(fixed: Fixed, key: KeyText, write: Take, *, is_whole: bool) -> Update:
    """The request."""
    names = tuple([name for name, amount_milli in write.takes_milli.items() if amount_milli])
    roofed = tuple(write.roofs_milli)
    is_bound = write.refilled_until_ms is not None
    form = _form(fixed, write.unexpired, is_bound, names, roofed, write.acquires > 0, is_whole)
    return Update(form, key, _values(write, is_whole))


@lru_cache(maxsize=1024)
def _form(
    fixed: Fixed,
    is_unseen: bool,
    is_bound: bool,
    names: Names,
    roofed: Names,
    counts: bool,
    is_whole: bool,
) -> Form:
    parts: list[Clause] = [SHARDS.equals, REFILLED_AT.at_least]
    if is_bound:
        parts.append(REFILLED_AT.at_most)
    if is_unseen:
        parts.append(TTL.is_absent_or_above)
    for name in names:
        limit = limit_fields(name)
        parts += [limit.tokens.at_least, limit.take]
        if name in roofed:
            parts.append(limit.tokens.at_most)
    if counts:
        parts.append(ACQUIRES.add)
    numbers = [(part, int) for part in parts]
    clauses = [*remembering(is_whole=is_whole), (LIMITS.equals, str), *numbers]
    return Form(fixed, *zip(*clauses, strict=True))


def _values(write: Take, is_whole: bool) -> list[Value]:
    """What goes into the blanks of the form, in its order."""
    values: list[Value] = [None if is_whole else "", write.operation, write.fingerprint]
    values += (write.shard_count, write.refilled_from_ms)
    if write.refilled_until_ms is not None:
        values.append(write.refilled_until_ms)
    if write.unexpired:
        values.append(write.at_ms // 1000)
    roofs_milli = write.roofs_milli
    for name, amount_milli in write.takes_milli.items():
        if amount_milli:
            values += (write.floors_milli[name], amount_milli)
            if name in roofs_milli:
                values.append(roofs_milli[name])
    if write.acquires:
        values.append(write.acquires)
    return values
