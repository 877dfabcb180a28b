"""For tests of code that uses a limiter, and for authors of stores.

    ManualClock, memory_repository, sync_memory_repository    a limiter that needs nothing
    Event, assert_window_theorem, ...                         check what buckets let out
    CHECKS, DRIVERS, run_check                                check a store of your own

Nothing here needs a test framework.
"""

from .clock import ManualClock
from .conformance import CHECKS, DRIVERS, Check, run_check
from .history import Event, Window, assert_window_theorem, window_excess, worst_window
from .memory import memory_repository, sync_memory_repository

__all__ = [
    "CHECKS",
    "DRIVERS",
    "Check",
    "Event",
    "ManualClock",
    "Window",
    "assert_window_theorem",
    "memory_repository",
    "run_check",
    "sync_memory_repository",
    "window_excess",
    "worst_window",
]
