"""Marked writes of this process, and marks that other processes left."""

from __future__ import annotations

from ...core.bucket import Bucket, BucketAddress
from ...core.marks import LONGEST_HELD_MS, held_at_ms, is_marked, mark_ancestor, may_mark_ancestor
from ..scope import Scope


def new_operation(scope: Scope, address: BucketAddress) -> str:
    """Return the id of a write to an item. It hands on the mark of a charge that may be undone."""
    operation = scope.io.operation_id()
    image = scope.local.images.get(address)
    if image is None:
        return operation
    ago_ms = held_for_ms(scope, image)
    return operation if ago_ms is None else mark_ancestor(operation, ago_ms)


def held_for_ms(scope: Scope, item: Bucket) -> int | None:
    """Return how long ago an ancestor was charged that may be given it back; None if long ago."""
    if not may_mark_ancestor(item.recent):
        return None
    held_ms = held_at_ms(undecided(scope, item))
    if held_ms is None:
        return None
    ago_ms = max(0, scope.io.now_ms() - held_ms)
    return ago_ms if ago_ms <= LONGEST_HELD_MS else None


def undecided(scope: Scope, item: Bucket) -> list[str]:
    """Return the charges that an item remembers and that may be undone: of other processes always,
    of our own until it is known that all levels of their requests have passed."""
    return [
        operation
        for operation in item.recent
        if is_marked(operation) and not _is_decided(scope, operation)
    ]


def _is_decided(scope: Scope, operation: str) -> bool:
    charges = scope.local.tentative.get(operation)
    return charges is not None and not any(charge.is_tentative for charge in charges)
