"""How the cost of an acquire grows: with limits, with the amounts taken, with entities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..subjects import (
    MOVING_WINDOW,
    PYRATE_LOCKED,
    PYRATE_LOG,
    SYNC_MEMORY,
    SYNC_SQLITE,
    THROTTLED,
    Subject,
)
from .workload import Case, Scale, Workload, plain_job, quotas

_AMOUNTS = (1, 100)
# Making many buckets takes longer than measuring them, so there are fewer rounds of it.
_BUCKETS_MADE = 200_000


@dataclass(frozen=True, slots=True)
class Limits:
    """More limits in one acquire."""

    name: str
    title: str
    subjects: Sequence[Subject]

    def cases(self, scale: Scale) -> Sequence[Case]:
        """1 of each limit is taken."""
        return [
            Case(
                subject,
                replace(plain_job(subject, scale), quotas=quotas(count), takes=(1,) * count),
                point=f"{count} limit{'s' if count > 1 else ''}",
            )
            for count in scale.limits
            for subject in self.subjects
        ]


@dataclass(frozen=True, slots=True)
class Amounts:
    """More tokens in one acquire: a log grows by each, a bucket does not."""

    name: str
    title: str
    subjects: Sequence[Subject]

    def cases(self, scale: Scale) -> Sequence[Case]:
        """1 request and so many tokens are taken."""
        return [
            Case(
                subject,
                replace(plain_job(subject, scale), takes=(1, amount)),
                point=f"{amount} token{'s' if amount > 1 else ''}",
            )
            for amount in _AMOUNTS
            for subject in self.subjects
        ]


@dataclass(frozen=True, slots=True)
class Entities:
    """More entities that are acquired for, at random."""

    name: str
    title: str
    subjects: Sequence[Subject]
    sizes: Callable[[Scale], Sequence[int]]

    def cases(self, scale: Scale) -> Sequence[Case]:
        """Every entity has a bucket before the clock starts."""
        return [
            Case(
                subject,
                replace(plain_job(subject, scale), entities=entities, populate=True),
                point=f"{entities:,} entities",
                most_rounds=max(1, _BUCKETS_MADE // entities),
            )
            for entities in self.sizes(scale)
            for subject in self.subjects
        ]


WORKLOADS: Sequence[Workload] = (
    Limits("limits-memory", "Memory: more limits per acquire", (SYNC_MEMORY, THROTTLED)),
    Limits("limits-sqlite", "SQLite: more limits per acquire", (SYNC_SQLITE, PYRATE_LOCKED)),
    Amounts(
        "amounts-memory",
        "Memory: more tokens per acquire",
        (SYNC_MEMORY, THROTTLED, MOVING_WINDOW, PYRATE_LOG),
    ),
    Amounts("amounts-sqlite", "SQLite: more tokens per acquire", (SYNC_SQLITE, PYRATE_LOCKED)),
    Entities(
        "entities-memory",
        "Memory: more entities",
        (SYNC_MEMORY, THROTTLED),
        lambda scale: scale.memory_entities,
    ),
    Entities(
        "entities-sqlite",
        "SQLite: more entities",
        (SYNC_SQLITE,),
        lambda scale: scale.sqlite_entities,
    ),
)
