"""The deadline of the call that is under way: by then its store calls end, one way or the other.

A deadline belongs to a task, a thread or a greenlet, and to the tasks that those start.
"""

from __future__ import annotations

import math
import time
from contextvars import ContextVar
from typing import NamedTuple

# A fifth of the time is kept, to ask what became of a write that was not answered.
_FOR_ONE_ANSWER = 0.8


class Deadline(NamedTuple):
    """The monotonic time by which a call must end, and how much time it had when it began."""

    at_s: float
    patience_s: float


_current: ContextVar[Deadline | None] = ContextVar("zae_limiter_deadline", default=None)
current_deadline = _current.get
set_deadline = _current.set


def time_left_of(longest_s: float) -> float:
    """Return the seconds that a step may take: at most `longest_s`, and what the call has left.
    Raises `TimeoutError` if it has none."""
    deadline = _current.get()
    if deadline is None:
        return longest_s
    left_s = deadline.at_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("the call has no time left")
    return min(longest_s, left_s)


def left_s() -> float:
    """Return the seconds that the call has left, which may be infinite or below zero."""
    deadline = _current.get()
    return math.inf if deadline is None else deadline.at_s - time.monotonic()


def answer_ends_s() -> float:
    """Return the monotonic time by which one answer must be whole."""
    deadline = _current.get()
    if deadline is None:
        return math.inf
    now_s = time.monotonic()
    return now_s + _FOR_ONE_ANSWER * (deadline.at_s - now_s)
