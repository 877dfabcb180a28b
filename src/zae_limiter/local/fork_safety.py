"""Locks and queues that survive a fork.

A fork copies only the thread that called it. A lock that another thread held would stay held
in the child for ever, and the child would wait for threads that it does not have.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol
from weakref import WeakSet


class KnowsThreads(Protocol):
    """An object that knows of other threads of its process."""

    def forget(self) -> None:
        """Forget the threads, of which the child has none."""


_locks: WeakSet[Any] = WeakSet()
_knowing: WeakSet[KnowsThreads] = WeakSet()


def new_lock() -> threading.Lock:
    """Make a lock that is free in every child."""
    lock = threading.Lock()
    free_in_child(lock)
    return lock


def free_in_child(lock: Any) -> None:
    """Have a lock, or an object made of locks, reset in every child."""
    _locks.add(lock)


def forget_in_child(knowing: KnowsThreads) -> None:
    """Have an object forget the parent's threads in every child."""
    _knowing.add(knowing)


def forget_other_threads() -> None:
    """Reset the locks and forget the threads of the parent. The child calls this first."""
    for lock in _locks:
        # `threading` resets its own locks in this way.
        lock._at_fork_reinit()
    for each in _knowing:
        each.forget()
