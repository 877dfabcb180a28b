"""Waiting for another connection to let go of the file."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from .errors import is_busy

T = TypeVar("T")

# Writers hold the file for well under a millisecond. SQLite's own busy handler soon sleeps for
# 100 ms at a time, in which a hundred other writers overtake.
_SHORTEST_NAP_S = 0.0001
_LONGEST_NAP_S = 0.002


def patiently(deadline: float, call: Callable[[], T]) -> T:
    """Make the call, and repeat it while the file is locked, until the deadline.

    The call must leave nothing behind when it fails. `deadline`: as `time.monotonic()` tells time.
    """
    while True:
        try:
            return call()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= deadline:
                raise
        time.sleep(random.uniform(_SHORTEST_NAP_S, _LONGEST_NAP_S))
