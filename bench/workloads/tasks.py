"""Many tasks of one process at one bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..subjects import ASYNC_SQLITE, ONE_BY_ONE
from .workload import Case, Scale, Workload, plain_job

_TASKS = 200


class Tasks:
    """What writing together saves, where acquires meet."""

    name = "tasks"
    title = f"SQLite, {_TASKS} tasks at one bucket"

    def cases(self, scale: Scale) -> Sequence[Case]:
        """With and without."""
        return [
            Case(subject, replace(plain_job(subject, scale), tasks=_TASKS))
            for subject in (ASYNC_SQLITE, ONE_BY_ONE)
        ]


WORKLOADS: Sequence[Workload] = (Tasks(),)
