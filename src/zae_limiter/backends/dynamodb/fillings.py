"""Takings from full buckets, which most are most of the time. They have few forms, too."""

from __future__ import annotations

from functools import lru_cache

from ...core.writes import Fill
from .bucket_fields import (
    ACQUIRES,
    CASCADE,
    DORMANT,
    LIMITS,
    PARENT,
    REFILLED_AT,
    SHARDS,
    TTL,
    limit_fields,
    remembering,
)
from .clauses import Clause, Fixed, Form, KeyText, Update, Value
from .expressions import Expression

Names = tuple[str, ...]
_NONE = type(None)


def filling(fixed: Fixed, key: KeyText, write: Fill, *, is_whole: bool) -> Update:
    """The request."""
    names = tuple(write.leaves_milli)
    taken = tuple([name for name, amount_milli in write.takes_milli.items() if amount_milli])
    lives_on, is_orphan = write.expires_at_s is None, write.parent_id is None
    form = _form(fixed, names, taken, write.acquires > 0, lives_on, is_orphan, is_whole)
    return Update(form, key, _values(write, is_whole))


@lru_cache(maxsize=1024)
def _form(
    fixed: Fixed,
    names: Names,
    taken: Names,
    counts: bool,
    lives_on: bool,
    is_orphan: bool,
    is_whole: bool,
) -> Form:
    clauses: list[tuple[Clause, type]] = [
        *remembering(is_whole=is_whole),
        (LIMITS.equals, str),
        (SHARDS.equals, int),
        (DORMANT.is_absent, _NONE),
        (REFILLED_AT.at_most, int),
        (REFILLED_AT.set, int),
        (_no_remainders(names), int),
        (CASCADE.set, bool),
        (TTL.remove, _NONE) if lives_on else (TTL.set, int),
        (PARENT.remove, _NONE) if is_orphan else (PARENT.set, str),
    ]
    for name in names:
        tokens = limit_fields(name).tokens
        clauses += (tokens.at_least, int), (tokens.set, int)
    clauses += [(limit_fields(name).consumed.add, int) for name in taken]
    if counts:
        clauses.append((ACQUIRES.add, int))
    return Form(fixed, *zip(*clauses, strict=True))


def _no_remainders(names: Names) -> Clause:
    def clear(e: Expression, zero: str) -> None:
        for name in names:
            limit_fields(name).remainder.set(e, zero)

    return clear


def _values(write: Fill, is_whole: bool) -> list[Value]:
    """What goes into the blanks of the form, in its order."""
    values: list[Value] = [
        None if is_whole else "",
        write.operation,
        write.fingerprint,
        write.shard_count,
        None,
        write.refilled_by_ms,
        write.at_ms,
        0,
        write.cascade,
        write.expires_at_s,
        write.parent_id,
    ]
    floors_milli = write.floors_milli
    for name, tokens_milli in write.leaves_milli.items():
        values += (floors_milli[name], tokens_milli)
    values += [amount_milli for amount_milli in write.takes_milli.values() if amount_milli]
    if write.acquires:
        values.append(write.acquires)
    return values
