"""What the child of a fork must not take over from its parent.

Of all threads only the one that forked lives on in the child. A lock that another held would
stay held for ever there, and nobody would come whom others wait for.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol
from weakref import WeakSet


class Forgetful(Protocol):
    """Something that knows of other threads."""

    def forget(self) -> None:
        """Forget them."""


_locks: WeakSet[Any] = WeakSet()
_forgetful: WeakSet[Forgetful] = WeakSet()


def new_lock() -> threading.Lock:
    """A lock that is free in every child."""
    lock = threading.Lock()
    free_in_child(lock)
    return lock


def free_in_child(lock: Any) -> None:
    """Have a lock, or something made of locks, made anew in every child."""
    _locks.add(lock)


def forget_in_child(forgetful: Forgetful) -> None:
    """Have something forgotten in every child."""
    _forgetful.add(forgetful)


def forget_other_threads() -> None:
    """To be called in a child, at once."""
    for lock in _locks:
        # What `threading` does to its own locks.
        lock._at_fork_reinit()
    for each in _forgetful:
        each.forget()
