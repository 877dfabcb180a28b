"""Operation ids are the idempotency keys of writes.

An id is a time and a suffix. The suffix names the operation, and the time is that at which this
copy of its write was planned. A bucket item remembers the ids of its last few writes, newest first.
When the answer to a write is lost, this memory tells whether the write landed, unless so many other
writes have landed since that its id was forgotten.

The memory cannot tell that a copy will not land later. So before a write is sent again, the fence
of the item is moved past the first copy: the item refuses what was planned before its fence.
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


def operation_name(operation: str) -> str:
    """Return the part of an id that all copies of an operation share."""
    return operation[_TIME_DIGITS:]


def fence_at(at_ms: int) -> str:
    """Return the fence that refuses everything planned before this time."""
    return f"{at_ms:011x}"


def fence_past(operation: str) -> str:
    """Return the fence that refuses this copy of an operation, and all that were planned before."""
    return fence_at(planned_at_ms(operation) + 1)


def past_fence(operation: str, fence: str) -> str:
    """Return the operation as a copy that is not refused by the fence."""
    return operation if operation > fence else fence + operation_name(operation)


def fenced(bucket: Bucket, operation: str) -> Bucket:
    """Return the bucket with its fence past an operation. A fence never moves back."""
    fence = fence_past(operation)
    return bucket if bucket.fence >= fence else bucket._replace(fence=fence)


def landing(operation: str, bucket: Bucket | None, known: Collection[str] = ()) -> Landing:
    """Return what the bucket's memory proves about an operation. `known`: operations that had
    landed before the operation was sent."""
    if bucket is None:
        return Landing.LOST
    name = operation_name(operation)
    # Copies are planned one after the other. An earlier operation may have had the same name.
    if any(operation_name(other) == name and other >= operation for other in bucket.recent):
        return Landing.LANDED
    if len(bucket.recent) < REMEMBERED_OPERATIONS:
        return Landing.LOST
    # A write that landed before ours was sent is still remembered. So no later write, ours
    # included, can have been forgotten.
    settled_ms = planned_at_ms(operation) - _SETTLED_AFTER_MS
    if any(other in known or planned_at_ms(other) < settled_ms for other in bucket.recent):
        return Landing.LOST
    return Landing.UNKNOWN
