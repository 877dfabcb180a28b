"""Metrics for Prometheus, by its own client.

    from prometheus_client import REGISTRY
    REGISTRY.register(LimiterCollector(limiter.repository))

The numbers are read when Prometheus asks, so they cost an acquire nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..repository_base import RepositoryBase
from .measures import PREFIX, measures
from .missing import missing_extra

try:
    from prometheus_client.core import CounterMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    raise missing_extra("prometheus") from error

if TYPE_CHECKING:
    from prometheus_client import Metric


class LimiterCollector(Collector):
    """The statistics of repositories as counters, each with the namespace as a label."""

    def __init__(self, *repositories: RepositoryBase) -> None:
        self._repositories = repositories

    def collect(self) -> Iterator[Metric]:
        """Yield every counter as of now."""
        families: dict[str, CounterMetricFamily] = {}
        for repository in self._repositories:
            for measure in measures(repository.get_stats()):
                family = families.setdefault(
                    measure.name,
                    CounterMetricFamily(
                        f"{PREFIX}_{measure.name}",
                        measure.meaning,
                        labels=("namespace", *measure.labels),
                    ),
                )
                for labels, value in measure.values.items():
                    family.add_metric((repository.namespace_name, *labels), value)
        yield from families.values()
