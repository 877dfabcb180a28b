"""Operation ids are the idempotency keys of writes.

An id starts with the time at which its write was planned. A bucket item remembers the ids of its
last few writes, newest first. When the answer to a write is lost, this memory tells whether the
write landed, unless so many other writes have landed since that its id was forgotten.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, auto

from .bucket import REMEMBERED_OPERATIONS, Bucket

_TIME_DIGITS = 11
# Longer than any write takes from planning to landing, clock skew between clients included.
_SETTLED_AFTER_MS = 15_000


class Landing(Enum):
    """A landing says whether a write whose answer was lost has taken effect."""

    LANDED = auto()
    LOST = auto()
    UNKNOWN = auto()


def operation_id(at_ms: int, suffix: str) -> str:
    """Return an id that tells its time. The suffix makes the id unique among all clients."""
    return f"{at_ms:011x}{suffix}"


def planned_at_ms(operation: str) -> int:
    """Return the time that an id tells."""
    return int(operation[:_TIME_DIGITS], 16)


def landing(operation: str, bucket: Bucket | None, known: Collection[str] = ()) -> Landing:
    """Return what the bucket's memory proves about an operation. `known`: operations that had
    landed before the operation was sent."""
    if bucket is None:
        return Landing.LOST
    if operation in bucket.recent:
        return Landing.LANDED
    if len(bucket.recent) < REMEMBERED_OPERATIONS:
        return Landing.LOST
    # A write that landed before ours was sent is still remembered. So no later write, ours
    # included, can have been forgotten.
    settled_ms = planned_at_ms(operation) - _SETTLED_AFTER_MS
    if any(other in known or planned_at_ms(other) < settled_ms for other in bucket.recent):
        return Landing.LOST
    return Landing.UNKNOWN
