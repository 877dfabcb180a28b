"""Metrics for Prometheus, by its own client.

    from prometheus_client import REGISTRY
    REGISTRY.register(LimiterCollector(limiter.repository))

The numbers are read when Prometheus asks, so they cost an acquire nothing. A histogram of durations
is opt-in, since it costs each acquire something:

    limiter.repository.listen(AcquireDurations())
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING

from ..core.events import AcquireEvent, AcquireOutcome, LostWrite
from ..repository_base import RepositoryBase
from .measures import PREFIX, measures_of
from .missing import missing_extra

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Histogram
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    raise missing_extra("prometheus") from error

if TYPE_CHECKING:
    from prometheus_client import Metric


# From an acquire in memory to one that has waited for a minute.
_BUCKETS_S = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 60)


class LimiterCollector(Collector):
    """The statistics of repositories as metrics, each with the namespace as a label."""

    def __init__(self, *repositories: RepositoryBase) -> None:
        self._repositories = repositories

    def collect(self) -> Iterator[Metric]:
        """Yield every metric as of now."""
        for measure in measures_of(self._repositories):
            kind = GaugeMetricFamily if measure.is_gauge else CounterMetricFamily
            family = kind(f"{PREFIX}_{measure.name}", measure.meaning, labels=measure.labels)
            for labels, value in measure.values.items():
                family.add_metric(labels, value)
            yield family


class AcquireDurations:
    """A listener that records how long acquires take, waiting included, by namespace and outcome.
    Repositories may share it."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._histogram = Histogram(
            f"{PREFIX}_acquire_seconds",
            "Durations of acquires.",
            ("namespace", "outcome"),
            registry=registry,
            buckets=_BUCKETS_S,
        )

    def acquire_began(self, event: AcquireEvent) -> tuple[str, float]:
        """Note the time."""
        return event.namespace, perf_counter()

    def acquire_ended(self, begun: tuple[str, float], outcome: AcquireOutcome) -> None:
        """Record the duration."""
        namespace, began_s = begun
        labels = self._histogram.labels(namespace, outcome.ending)
        labels.observe(perf_counter() - began_s)

    def write_lost(self, lost: LostWrite) -> None:
        """Record nothing: lost writes are counted."""
