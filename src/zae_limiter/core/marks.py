"""Marks in operation ids tell that tokens of an item may be about to come back.

A charge is undone if another level of its request refuses. Whoever finds the item short meanwhile
must not be refused for that. So the id of such a charge is marked, and the item remembers it.

An item remembers few ids, so writes that follow hand on the mark of an ancestor's charge, and how
long ago that was. Without this, an item that is written often would forget the charge before it is
undone.
"""

from __future__ import annotations

from collections.abc import Iterable

from .idempotency import operation_name, planned_at_ms

# Two hexadecimal digits tell how many of these steps have passed since an ancestor was charged.
_STEP_MS = 16
LONGEST_HELD_MS = 255 * _STEP_MS
_ANCESTOR = "~"
_LEAF = "-"


def mark_leaf(operation: str) -> str:
    """Return the id of a charge of an entity's own bucket, undone if an ancestor refuses."""
    return _marked(operation, _LEAF)


def mark_ancestor(operation: str, ago_ms: int = 0) -> str:
    """Return the id of a charge of an ancestor's bucket, undone if a lower level refuses; or of a
    write that follows one so soon."""
    assert 0 <= ago_ms <= LONGEST_HELD_MS
    return _marked(operation, f"{_ANCESTOR}{ago_ms // _STEP_MS:02x}")


def _marked(operation: str, mark: str) -> str:
    name = operation_name(operation)
    return f"{operation.removesuffix(name)}{mark}{name}"


def is_marked(operation: str) -> bool:
    """Return whether a charge of any level may be undone."""
    return operation_name(operation).startswith((_ANCESTOR, _LEAF))


def may_mark_ancestor(operations: Iterable[str]) -> bool:
    """Return False when none of these ids marks an ancestor's charge. Every acquire asks this, and
    one look at all ids takes a tenth of the time of a look at each."""
    return _ANCESTOR in "".join(operations)


def held_at_ms(operations: Iterable[str]) -> int | None:
    """Return when an ancestor was charged last that may be given it back, as these ids tell: to
    the step, and not too early."""
    marked = [each for each in operations if operation_name(each).startswith(_ANCESTOR)]
    return max((planned_at_ms(each) - _passed_ms(each) for each in marked), default=None)


def _passed_ms(operation: str) -> int:
    return int(operation_name(operation)[1:3], 16) * _STEP_MS
