"""Metrics and spans for OpenTelemetry, by its API alone: without an SDK nothing happens.

observe(limiter.repository)          counts, read when a reader collects: they cost no acquire
time_acquires(limiter.repository)    a histogram of durations: opt-in, it costs each acquire
trace_acquires(limiter.repository)   a span for each acquire: opt-in, it costs each acquire
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from time import perf_counter

from .._version import __version__
from ..core.events import AcquireEvent, AcquireOutcome, LostWrite
from ..repository_base import RepositoryBase
from .measures import PREFIX, Measure, measures_of
from .missing import missing_extra

try:
    from opentelemetry.metrics import (
        CallbackOptions,
        Histogram,
        MeterProvider,
        Observation,
        get_meter_provider,
    )
    from opentelemetry.trace import (
        Span,
        SpanKind,
        StatusCode,
        Tracer,
        TracerProvider,
        get_tracer_provider,
    )
except ImportError as error:
    raise missing_extra("opentelemetry") from error


def observe(*repositories: RepositoryBase, meter_provider: MeterProvider | None = None) -> None:
    """Make an observable instrument for each measure, with the namespace as an attribute."""
    provider = meter_provider or get_meter_provider()
    meter = provider.get_meter(PREFIX, __version__)
    for measure in measures_of(repositories):
        name, callbacks = f"{PREFIX}.{measure.name}", [_reading(repositories, measure)]
        if measure.is_gauge:
            meter.create_observable_gauge(name, callbacks, description=measure.meaning)
        else:
            meter.create_observable_counter(name, callbacks, description=measure.meaning)


def time_acquires(
    *repositories: RepositoryBase, meter_provider: MeterProvider | None = None
) -> None:
    """Record how long each acquire takes, waiting included, by namespace and outcome."""
    provider = meter_provider or get_meter_provider()
    histogram = provider.get_meter(PREFIX, __version__).create_histogram(
        f"{PREFIX}.acquire.duration", unit="s", description="Durations of acquires."
    )
    for repository in repositories:
        repository.listen(_Durations(histogram))


def trace_acquires(
    *repositories: RepositoryBase, tracer_provider: TracerProvider | None = None
) -> None:
    """Make a span of each acquire, a child of the span that is current."""
    provider = tracer_provider or get_tracer_provider()
    tracer = provider.get_tracer(PREFIX, __version__)
    for repository in repositories:
        repository.listen(_Spans(tracer))


class _Durations:
    """A listener that records durations."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram

    def acquire_began(self, event: AcquireEvent) -> tuple[str, float]:
        return event.namespace, perf_counter()

    def acquire_ended(self, begun: tuple[str, float], outcome: AcquireOutcome) -> None:
        namespace, began_s = begun
        about = {"namespace": namespace, "outcome": outcome.ending}
        self._histogram.record(perf_counter() - began_s, about)

    def write_lost(self, lost: LostWrite) -> None:
        """Record nothing: lost writes are counted."""


class _Spans:
    """A listener that makes spans."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def acquire_began(self, event: AcquireEvent) -> Span:
        about: dict[str, str | int] = {
            f"{PREFIX}.namespace": event.namespace,
            f"{PREFIX}.entity_id": event.entity_id,
            f"{PREFIX}.resource": event.resource,
            **{f"{PREFIX}.consume.{name}": n for name, n in event.consume.items()},
        }
        return self._tracer.start_span("acquire", kind=SpanKind.CLIENT, attributes=about)

    def acquire_ended(self, begun: Span, outcome: AcquireOutcome) -> None:
        begun.set_attribute(f"{PREFIX}.outcome", outcome.ending)
        # A refusal is what a limiter is for: no error.
        if outcome.ending in ("unavailable", "failed"):
            begun.set_status(StatusCode.ERROR, str(outcome.error or outcome.ending))
        begun.end()

    def write_lost(self, lost: LostWrite) -> None:
        """Make no span: lost writes are counted and logged."""


def _reading(
    repositories: tuple[RepositoryBase, ...], wanted: Measure
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def read(options: CallbackOptions) -> Iterator[Observation]:
        for measure in measures_of(repositories):
            if measure.name == wanted.name:
                yield from _observations(measure)

    return read


def _observations(measure: Measure) -> Iterator[Observation]:
    for labels, value in measure.values.items():
        yield Observation(value, dict(zip(measure.labels, labels, strict=True)))
