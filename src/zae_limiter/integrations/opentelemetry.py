"""Metrics for OpenTelemetry, by its API alone: without an SDK nothing happens.

    observe(limiter.repository)

The numbers are read when a reader collects, so they cost an acquire nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from .._version import __version__
from ..repository_base import RepositoryBase
from .measures import PREFIX, Measure, measures
from .missing import missing_extra

try:
    from opentelemetry.metrics import (
        CallbackOptions,
        MeterProvider,
        Observation,
        get_meter_provider,
    )
except ImportError as error:
    raise missing_extra("opentelemetry") from error


def observe(*repositories: RepositoryBase, meter_provider: MeterProvider | None = None) -> None:
    """Make an observable counter for each measure, with the namespace as an attribute."""
    provider = meter_provider or get_meter_provider()
    meter = provider.get_meter(PREFIX, __version__)
    for measure in measures(repositories[0].get_stats()):
        meter.create_observable_counter(
            f"{PREFIX}.{measure.name}",
            callbacks=[_reading(repositories, measure)],
            description=measure.meaning,
        )


def _reading(
    repositories: tuple[RepositoryBase, ...], wanted: Measure
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def read(options: CallbackOptions) -> Iterator[Observation]:
        for repository in repositories:
            for measure in measures(repository.get_stats()):
                if measure.name == wanted.name:
                    yield from _observations(repository.namespace_name, measure)

    return read


def _observations(namespace: str, measure: Measure) -> Iterator[Observation]:
    for labels, value in measure.values.items():
        named = dict(zip(measure.labels, labels, strict=True))
        yield Observation(value, {"namespace": namespace, **named})
