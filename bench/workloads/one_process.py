"""One process, one entity, two limits that never bind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..subjects import (
    ASYNC_MEMORY,
    ASYNC_SQLITE,
    FIXED_WINDOW,
    MOVING_WINDOW,
    PYRATE_LOCKED,
    PYRATE_LOG,
    PYRATE_SQLITE,
    PYRATE_STATE,
    SYNC_MEMORY,
    SYNC_SQLITE,
    THROTTLED,
    Subject,
)
from .workload import Case, Scale, Workload, plain_job


@dataclass(frozen=True, slots=True)
class OneProcess:
    """As fast as each can."""

    name: str
    title: str
    subjects: Sequence[Subject]

    def cases(self, scale: Scale) -> Sequence[Case]:
        """One for each subject."""
        return [Case(subject, plain_job(subject, scale)) for subject in self.subjects]


WORKLOADS: Sequence[Workload] = (
    OneProcess(
        "memory",
        "Memory: 2 limits per acquire",
        (
            SYNC_MEMORY,
            ASYNC_MEMORY,
            THROTTLED,
            FIXED_WINDOW,
            MOVING_WINDOW,
            PYRATE_LOG,
            PYRATE_STATE,
        ),
    ),
    OneProcess(
        "sqlite",
        "SQLite: 2 limits per acquire",
        (SYNC_SQLITE, ASYNC_SQLITE, PYRATE_SQLITE, PYRATE_LOCKED),
    ),
)
