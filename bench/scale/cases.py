"""What the guide shows of one hot key."""

from __future__ import annotations

from .hot_key import FALLING, FULL, SHORT, Case

PROCESSES = (1, 4, 20, 50)
# Less time for higher loads: what is counted is thousands of acquires in any case.
_SECONDS = {1000: (2.0, 1.0), 10_000: (1.0, 1.0), 100_000: (0.2, 0.6)}

LEVELS = tuple(level.name for level in (FALLING, FULL, SHORT))
CASES = tuple(
    Case(level, acquires_per_s, processes, seconds, warm_s)
    for level in (FALLING, FULL, SHORT)
    for acquires_per_s, (seconds, warm_s) in _SECONDS.items()
    for processes in PROCESSES
)
