"""Where limits are configured on DynamoDB: what looking for them costs, and changing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..subjects import Subject, in_configs
from ..worker.adapter import FOR_EVER_S
from .shared import shared_job
from .workload import Case, Scale, Workload

_ROUNDS = 2
_NAMELESS = 100


@dataclass(frozen=True, slots=True)
class Config:
    """One entity that has limits of its own, or as many as there are in `shape`."""

    name: str
    title: str
    subjects: Sequence[Subject]
    shape: Mapping[str, Any] = field(default_factory=dict)

    def cases(self, scale: Scale) -> Sequence[Case]:
        """One for each subject."""
        return [
            Case(subject, shared_job(subject, scale, **self.shape), most_rounds=_ROUNDS)
            for subject in self.subjects
        ]


class SparseTraffic:
    """20,000 users, most of whom are not seen again before the cache forgets them."""

    name = "config_sparse_traffic"
    title = "Configuration: 20,000 users, seldom seen"

    def cases(self, scale: Scale) -> Sequence[Case]:
        """As many requests as there are users: a tenth of a day."""
        subject = in_configs("Sparse")[0]
        job = shared_job(subject, scale, entities=scale.users)
        job = replace(job, calls=scale.users, seconds=FOR_EVER_S, warmup=0)
        return [Case(subject, job, most_rounds=1)]


class NegativeCache:
    """Users without limits of their own: that there are none is remembered too."""

    name = "config_negative_cache"
    title = "Configuration: users without limits"

    def cases(self, scale: Scale) -> Sequence[Case]:
        """The first request of each, and those that follow within a minute."""
        points = {"first request": "Read", "again": "Cached"}
        return [
            Case(
                subject,
                shared_job(subject, scale, entities=_NAMELESS, populate=True),
                point=point,
                most_rounds=_ROUNDS,
            )
            for point, adapter in points.items()
            for subject in in_configs(adapter)
        ]


WORKLOADS: Sequence[Workload] = (
    Config("config_read_latency", "Configuration: read from the table", in_configs("Read")),
    Config("config_cache_hit", "Configuration: found in the cache", in_configs("Cached")),
    Config(
        "acquire_with_config",
        "Configuration: acquire after reading it",
        in_configs("Acquire"),
    ),
    Config(
        "config_version_atomic",
        "Configuration: 10 tasks change one record",
        in_configs("Version")[:1],
        {"tasks": 10},
    ),
    SparseTraffic(),
    NegativeCache(),
)
