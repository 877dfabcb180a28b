"""Four processes that share one SQLite file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..subjects import PYRATE_WAITING, SYNC_SQLITE
from .workload import Case, Scale, Workload, plain_job, quotas

_PROCESSES = 4
_SUBJECTS = (SYNC_SQLITE, PYRATE_WAITING)
_PER_SECOND = 100


class Throughput:
    """The limits never bind: how much the four get done together."""

    name = "processes"
    title = "SQLite, 4 processes on one file"

    def cases(self, scale: Scale) -> Sequence[Case]:
        """One for each subject that several processes can share."""
        return [
            Case(subject, plain_job(subject, scale), processes=_PROCESSES) for subject in _SUBJECTS
        ]


class Correctness:
    """The limits bind: whether the four together keep them."""

    name = "processes-limited"
    title = f"SQLite, 4 processes, at most {_PER_SECOND}/s"

    def cases(self, scale: Scale) -> Sequence[Case]:
        """Nobody warms up: that would take from the limits."""
        return [
            Case(
                subject,
                replace(
                    plain_job(subject, scale),
                    quotas=quotas(capacity=_PER_SECOND, period_s=1),
                    warmup=0,
                    seconds=2 * scale.seconds,
                ),
                processes=_PROCESSES,
                bounded=True,
            )
            for subject in _SUBJECTS
        ]


WORKLOADS: Sequence[Workload] = (Throughput(), Correctness())
