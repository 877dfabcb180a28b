"""Steady time: the system clock as this process first saw it, and the monotonic clock since.

A step of the system clock does not change it. A store's clock is measured against it, and tells
how far it is off.
"""

from __future__ import annotations

import time

_start_ns = time.time_ns() - time.monotonic_ns()


def steady_ms() -> int:
    """Return the steady time, in milliseconds since the epoch."""
    return (_start_ns + time.monotonic_ns()) // 1_000_000


def steady_s() -> float:
    """Return the steady time, in seconds since the epoch."""
    return (_start_ns + time.monotonic_ns()) / 1_000_000_000
