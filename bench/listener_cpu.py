"""CPU of one acquire in memory, with each way of being told of it.

    python -m bench.listener_cpu

The ways take turns, several times; the best round of each counts, because other work on the
machine only ever adds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from prometheus_client import CollectorRegistry

from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.integrations.log_listener import LogListener
from zae_limiter.integrations.opentelemetry import observe, time_acquires, trace_acquires
from zae_limiter.integrations.prometheus import AcquireDurations, LimiterCollector

_ROUNDS, _ACQUIRES = 15, 2_000


class _Nothing:
    """A listener that does nothing."""

    def acquire_began(self, event: Any) -> None: ...
    def acquire_ended(self, begun: Any, outcome: Any) -> None: ...
    def write_lost(self, lost: Any) -> None: ...


class _Dropped(SpanExporter):
    """An exporter that drops all spans."""

    def export(self, spans: Any) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def _prometheus(repository: SyncRepository) -> None:
    CollectorRegistry().register(LimiterCollector(repository))


def _open_telemetry(repository: SyncRepository) -> None:
    observe(repository, meter_provider=MeterProvider([InMemoryMetricReader()]))


def _otel_histogram(repository: SyncRepository) -> None:
    time_acquires(repository, meter_provider=MeterProvider([InMemoryMetricReader()]))


def _otel_spans(repository: SyncRepository) -> None:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(_Dropped()))
    trace_acquires(repository, tracer_provider=provider)


WAYS: dict[str, Callable[[SyncRepository], None]] = {
    "off": lambda repository: None,
    "counts for Prometheus": _prometheus,
    "counts for OpenTelemetry": _open_telemetry,
    "a listener that does nothing": lambda repository: repository.listen(_Nothing()),
    "log records, admitted ones off": lambda repository: repository.listen(LogListener()),
    "histogram of Prometheus": lambda repository: repository.listen(
        AcquireDurations(CollectorRegistry())
    ),
    "histogram of OpenTelemetry": _otel_histogram,
    "spans without an SDK": lambda repository: trace_acquires(repository),
    "spans of OpenTelemetry": _otel_spans,
}


def main() -> None:
    logging.getLogger("zae_limiter").setLevel(logging.INFO)
    limiters = {name: _limiter(way) for name, way in WAYS.items()}
    best = dict.fromkeys(WAYS, float("inf"))
    for _ in range(_ROUNDS):
        for name, limiter in limiters.items():
            best[name] = min(best[name], _round_s(limiter))
    for name, cpu_s in best.items():
        more_s = cpu_s - best["off"]
        print(f"{name:32} {1e6 * cpu_s:6.1f} us of CPU per acquire, {1e6 * more_s:+5.1f}")


def _limiter(way: Callable[[SyncRepository], None]) -> SyncRateLimiter:
    repository = SyncRepository.open(url="memory://")
    repository.set_system_defaults([Limit.per_second("rps", 10**9)])
    way(repository)
    return SyncRateLimiter(repository)


def _round_s(limiter: SyncRateLimiter) -> float:
    started_s = time.process_time()
    for _ in range(_ACQUIRES):
        with limiter.acquire("key-1", "api", {"rps": 1}):
            pass
    return (time.process_time() - started_s) / _ACQUIRES


if __name__ == "__main__":
    main()
