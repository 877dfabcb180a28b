"""Limits that many machines share: DynamoDB, and what others do with Redis.

Buckets are in use: their limits are so large that they never bind, and refill so slowly that
they are not at their ceilings, but for the one that is said to be full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..subjects import BARE, Subject, on_dynamodb, on_redis
from ..worker.job import Job, Quota
from .workload import Case, Scale, Workload

_MONTH_S = 30 * 86_400
_QUOTAS = (Quota("requests", 10_000_000, _MONTH_S), Quota("tokens", 1_000_000_000, _MONTH_S))
# What was taken has come back before the next asks.
_QUICK_QUOTAS = (Quota("requests", 1_000_000, 1), Quota("tokens", 100_000_000, 1))
# Nine of ten customers have taken all there is; the tenth has room for as long as it lasts.
_ENTITIES, _DRAINED = 10, 9
_SMALL_QUOTAS = (Quota("requests", 100_000, _MONTH_S), Quota("tokens", 10_000_000, _MONTH_S))
_TAKES = (1, 100)
_LEAST_WARMUP = 20
# As many forward as backward.
_ROUNDS = 4

_OURS, _OTHERS = on_dynamodb("Async"), on_redis("Async")
# It charges one parent at most.
_DEEP = tuple(subject for subject in _OURS if subject.environment == "ours")


def shared_job(subject: Subject, scale: Scale, **shape: Any) -> Job:
    """1 request and 100 tokens are taken. Every task has made two acquires before that."""
    job = Job(
        subject.adapter,
        subject.distribution,
        _QUOTAS,
        _TAKES,
        seconds=2 * scale.seconds,
    )
    job = replace(job, **shape)
    return replace(job, warmup=max(_LEAST_WARMUP, 2 * job.tasks))


@dataclass(frozen=True, slots=True)
class Shared:
    """The same for everybody. `shape`: how the job differs from one key, one call at a time."""

    name: str
    title: str
    subjects: Sequence[Subject]
    shape: Mapping[str, Any] = field(default_factory=dict)
    mixed: bool = False

    def cases(self, scale: Scale) -> Sequence[Case]:
        """One for each subject."""
        return [
            Case(
                subject,
                shared_job(subject, scale, **self.shape),
                mixed=self.mixed,
                most_rounds=_ROUNDS,
            )
            for subject in self.subjects
        ]


# The machine and its server should be as fast when the run ends as when it began.
FIRST = Shared("shared-first", "The server, at the beginning of the run", (BARE,))
LAST = Shared("shared-last", "The server, at the end of the run", (BARE,))

WORKLOADS: Sequence[Workload] = (
    FIRST,
    Shared("shared-one-key", "Shared: one key, one call at a time", (*_OURS, *_OTHERS)),
    Shared(
        "shared-full",
        "Shared: 50 full keys at random, one call at a time",
        _OURS,
        {"entities": 50, "populate": True, "quotas": _QUICK_QUOTAS},
    ),
    Shared(
        "shared-50-keys",
        "Shared: 50 tasks, a key for each",
        (*_OURS, BARE, *_OTHERS),
        {"entities": 50, "tasks": 50, "apart": True, "populate": True},
    ),
    Shared(
        "shared-hot-50",
        "Shared: 50 tasks at one key",
        (*_OURS, *_OTHERS),
        {"tasks": 50},
    ),
    Shared(
        "shared-hot-200",
        "Shared: 200 tasks at one key",
        (*_OURS, *_OTHERS),
        {"tasks": 200},
    ),
    Shared(
        "shared-cascade-2",
        "Shared: a key and its parent",
        (*_OURS, *_OTHERS),
        {"levels": 2},
    ),
    Shared(
        "shared-cascade-4",
        "Shared: a key and three ancestors",
        (*_DEEP, *_OTHERS),
        {"levels": 4},
    ),
    Shared(
        "shared-refusals",
        "Shared: 9 of 10 refused",
        (*_OURS, *_OTHERS),
        {"entities": _ENTITIES, "drained": _DRAINED, "populate": True, "quotas": _SMALL_QUOTAS},
        mixed=True,
    ),
    Shared("shared-adjust", "Shared: acquire, then adjust", _OURS, {"adjusts": True}),
    Shared(
        "shared-threads",
        "Shared: 16 threads, a key for each",
        (*on_dynamodb("Threads"), *on_redis("Threads")),
        {"entities": 16, "tasks": 16, "apart": True, "populate": True},
    ),
)
