"""What the guide shows of one hot key."""

from __future__ import annotations

from .hot_key import FALLING, FULL, SHORT, Case

PROCESSES = (1, 4, 20, 50)
# Less time for higher loads: what is counted is thousands of acquires in any case.
_SECONDS = {1000: (2.0, 1.0), 10_000: (1.0, 1.0), 100_000: (0.1, 0.4)}
_LOADS_PER_S = {
    FALLING: (1000, 10_000, 100_000),
    FULL: (1000, 10_000, 100_000),
    SHORT: (1000, 10_000),
}

LEVELS = tuple(level.name for level in _LOADS_PER_S)
CASES = tuple(
    Case(level, acquires_per_s, processes, *_SECONDS[acquires_per_s])
    for level, loads_per_s in _LOADS_PER_S.items()
    for acquires_per_s in loads_per_s
    for processes in PROCESSES
)
