"""What it costs to say no."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..subjects import IN_MEMORY, PYRATE_LOCKED, PYRATE_SQLITE, SYNC_SQLITE, Subject
from ..worker.job import Quota
from .workload import MINUTE_S, PLENTY, Case, Scale, Workload, plain_job

_DAY_S = 86_400
# The limit that is used up is asked first: whoever asks for one after the other need not
# ask for the second, nor give the first back.
_QUOTAS = (Quota("tokens", 1, _DAY_S), Quota("requests", PLENTY, MINUTE_S))


@dataclass(frozen=True, slots=True)
class Refusals:
    """One of two limits is used up for the day."""

    name: str
    title: str
    subjects: Sequence[Subject]

    def cases(self, scale: Scale) -> Sequence[Case]:
        """The first acquire of the warm-up takes all there is."""
        return [
            Case(subject, replace(plain_job(subject, scale), quotas=_QUOTAS), expects_refusal=True)
            for subject in self.subjects
        ]


WORKLOADS: Sequence[Workload] = (
    Refusals("refusals-memory", "Memory: refusals", IN_MEMORY),
    Refusals(
        "refusals-sqlite",
        "SQLite: refusals",
        (SYNC_SQLITE, PYRATE_SQLITE, PYRATE_LOCKED),
    ),
)
