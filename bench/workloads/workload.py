"""What a workload is: a name, and the cases that are compared in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ..subjects import Subject
from ..worker.job import Job, Quota

# More than anybody can take while it is measured.
PLENTY = 1_000_000_000
MINUTE_S = 60
NAMES = ("requests", "tokens", "images", "searches", "uploads", "seconds")


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done: enough for a smoke test, for figures, or for patient people."""

    rounds: int
    seconds: float
    limits: tuple[int, ...]
    footprint_buckets: int
    memory_entities: tuple[int, ...]
    sqlite_entities: tuple[int, ...]
    users: int


QUICK = Scale(1, 0.02, (6,), 1_000, (1_000,), (1_000,), 200)
NORMAL = Scale(
    5, 0.5, (1, 3, 6), 100_000, (100, 10_000, 100_000, 1_000_000), (100, 10_000, 100_000), 20_000
)
FULL = replace(NORMAL, sqlite_entities=(*NORMAL.sqlite_entities, 1_000_000))


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table.

    `point`: where on the axis of a growth it is. `bounded`: its limits bind, so what all
    processes were admitted is held against them. `mixed`: some are refused, as it should be.
    `most_rounds`: because it takes long.
    """

    subject: Subject
    job: Job
    point: str = ""
    processes: int = 1
    bounded: bool = False
    expects_refusal: bool = False
    mixed: bool = False
    most_rounds: int | None = None

    @property
    def name(self) -> str:
        """Its name within the workload."""
        point = self.point.replace(" ", "-").replace(",", "")
        return self.subject.name + (f"@{point}" if point else "")


class Workload(Protocol):
    """Cases that do the same with different limiters. The first case of each point is ours:
    the others are compared with it."""

    @property
    def name(self) -> str:
        """What `--only` calls it."""

    @property
    def title(self) -> str:
        """What the table calls it."""

    def cases(self, scale: Scale) -> Sequence[Case]:
        """What is measured."""


def quotas(count: int = 2, capacity: int = PLENTY, period_s: int = MINUTE_S) -> tuple[Quota, ...]:
    """So many limits, all alike."""
    return tuple(Quota(name, capacity, period_s) for name in NAMES[:count])


def plain_job(subject: Subject, scale: Scale) -> Job:
    """One entity takes 1 of each of two limits that never bind."""
    return Job(subject.adapter, subject.distribution, quotas(), takes=(1, 1), seconds=scale.seconds)
