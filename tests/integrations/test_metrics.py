"""Metrics tell what happened, by the clients of Prometheus and OpenTelemetry themselves."""

from __future__ import annotations

import json
import logging
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    HistogramDataPoint,
    InMemoryMetricReader,
    NumberDataPoint,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.integrations.log_listener import LogListener
from zae_limiter.integrations.measures import PREFIX, measures
from zae_limiter.integrations.opentelemetry import observe, time_acquires, trace_acquires
from zae_limiter.integrations.prometheus import AcquireDurations, LimiterCollector

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture
def repository() -> Iterator[SyncRepository]:
    """A repository where three acquires were admitted and two refused."""
    with SyncRepository.open(url="memory://") as opened:
        opened.set_system_defaults([Limit.per_day("rpd", 3)])
        limiter = SyncRateLimiter(opened)
        for number in range(5):
            try:
                with limiter.acquire("key-1", "gpt-4", {"rpd": 1}):
                    assert number < 3
            except RateLimitExceeded:
                assert number >= 3
        yield opened


def refuse_one(repository: SyncRepository) -> None:
    with (
        pytest.raises(RateLimitExceeded),
        SyncRateLimiter(repository).acquire("key-1", "gpt-4", {"rpd": 1}),
    ):
        pass


def served(registry: CollectorRegistry) -> str:
    """What Prometheus is told over HTTP."""
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
            told: str = answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    return told


def samples(text: str) -> dict[tuple[str, str], float]:
    return {
        (sample.name, json.dumps(sample.labels, sort_keys=True)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_is_told_how_acquires_ended(repository: SyncRepository) -> None:
    registry = CollectorRegistry()
    registry.register(LimiterCollector(repository))
    found = samples(served(registry))
    outcomes = {
        outcome: found[
            "zae_limiter_acquires_total",
            json.dumps({"namespace": "default", "outcome": outcome}),
        ]
        for outcome in ("admitted", "refused", "degraded", "unavailable")
    }
    assert outcomes == {"admitted": 3, "refused": 2, "degraded": 0, "unavailable": 0}
    labels = json.dumps({"level": "own", "limit": "rpd", "namespace": "default"})
    assert found["zae_limiter_refusals_total", labels] == 2
    namespace = json.dumps({"namespace": "default"})
    assert found["zae_limiter_breaker", namespace] == 0
    assert found["zae_limiter_lost_writes_total", namespace] == 0


def test_namespaces_have_lines_of_their_own(repository: SyncRepository) -> None:
    repository.register_namespace("other")
    other = repository.namespace("other")
    other.set_system_defaults([Limit.per_day("rpd", 3)])
    with SyncRateLimiter(other).acquire("key-1", "gpt-4", {"rpd": 1}):
        pass
    registry = CollectorRegistry()
    registry.register(LimiterCollector(repository, other))
    found = samples(served(registry))
    for namespace, admitted in (("default", 3), ("other", 1)):
        labels = json.dumps({"namespace": namespace, "outcome": "admitted"})
        assert found["zae_limiter_acquires_total", labels] == admitted


def points_of(*repositories: SyncRepository) -> dict[tuple[str, str], float]:
    """What OpenTelemetry's SDK is told, as Prometheus' client would name it."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    observe(*repositories, meter_provider=provider)
    data = reader.get_metrics_data()
    assert data is not None
    found = {
        (metric.name, json.dumps(dict(point.attributes or {}), sort_keys=True)): float(point.value)
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint)
    }
    provider.shutdown()
    return found


def test_stores_with_namespaces_of_one_name_are_added_up(repository: SyncRepository) -> None:
    with SyncRepository.open(url="memory://") as other:
        other.set_system_defaults([Limit.per_day("rpd", 3)])
        with SyncRateLimiter(other).acquire("key-1", "gpt-4", {"rpd": 1}):
            pass
        registry = CollectorRegistry()
        registry.register(LimiterCollector(repository, other))
        text, points = served(registry), points_of(repository, other)
    lines = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines))
    labels = json.dumps({"namespace": "default", "outcome": "admitted"})
    assert samples(text)["zae_limiter_acquires_total", labels] == 4
    assert points["zae_limiter.acquires", labels] == 4


def test_calls_of_a_store_that_namespaces_share_are_told_once(tmp_path: Path) -> None:
    with SyncRepository.open(url=f"sqlite:///{tmp_path}/limits.db") as repository:
        repository.register_namespace("other")
        other = repository.namespace("other")
        registry = CollectorRegistry()
        registry.register(LimiterCollector(repository, other))
        found, points = samples(served(registry)), points_of(repository, other)
        calls = sum(repository.get_stats().traffic.calls.values())
    told = {name: n for (name, _), n in found.items() if name.startswith("zae_limiter_store_calls")}
    assert told
    for each in (found, points):
        names = ("zae_limiter_store_calls_total", "zae_limiter.store_calls")
        assert sum(n for (name, _), n in each.items() if name in names) == calls


@pytest.mark.parametrize(("store", "operation"), [("sqlite", "write"), ("dynamodb", "UpdateItem")])
def test_a_store_outside_memory_tells_calls_and_their_seconds(
    store: str, operation: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    is_file = store == "sqlite"
    url = f"sqlite:///{tmp_path}/limits.db" if is_file else request.getfixturevalue("table").url
    with SyncRepository.open(url=url) as repository:
        repository.set_system_defaults([Limit.per_day("rpd", 30)])
        before = repository.get_stats().traffic
        for _ in range(5):
            with SyncRateLimiter(repository).acquire("key-1", "gpt-4", {"rpd": 1}):
                pass
        traffic = repository.get_stats().traffic
        registry = CollectorRegistry()
        registry.register(LimiterCollector(repository))
        found = samples(served(registry))
    assert 4 <= traffic.calls[operation] - before.calls.get(operation, 0) <= 6
    assert traffic.seconds[operation] > before.seconds.get(operation, 0.0)
    labels = json.dumps({"namespace": "default", "operation": operation})
    assert found["zae_limiter_store_seconds_total", labels] > 0


def test_open_telemetry_is_told_the_same(repository: SyncRepository) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    observe(repository, meter_provider=provider)
    data = reader.get_metrics_data()
    assert data is not None
    metrics = data.resource_metrics[0].scope_metrics[0].metrics
    points = {
        (metric.name, *sorted(map(str, dict(point.attributes or {}).values()))): point.value
        for metric in metrics
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint)
    }
    assert points["zae_limiter.acquires", "admitted", "default"] == 3
    assert points["zae_limiter.acquires", "default", "refused"] == 2
    assert points["zae_limiter.refusals", "default", "own", "rpd"] == 2
    provider.shutdown()


@pytest.mark.parametrize("file", ["grafana-dashboard.json", "prometheus-alerts.yaml"])
def test_dashboard_and_alerts_ask_for_metrics_that_exist(
    repository: SyncRepository, file: str
) -> None:
    text = (DEPLOY / file).read_text(encoding="utf-8")
    registry = CollectorRegistry()
    registry.register(LimiterCollector(repository))
    repository.listen(AcquireDurations(registry))
    refuse_one(repository)
    known = {name for name, _ in samples(served(registry))}
    # A metric without a value yet has no line of its own.
    known |= {f"{PREFIX}_{measure.name}_total" for measure in measures(repository.get_stats())}
    asked = set(re.findall(r"zae_limiter_\w+", text))
    assert asked
    assert asked <= known


def test_the_dashboard_and_the_documentation_show_every_metric(repository: SyncRepository) -> None:
    dashboard = (DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8")
    page = (DEPLOY.parent / "docs" / "observability.md").read_text(encoding="utf-8")
    for measure in measures(repository.get_stats()):
        name = f"{PREFIX}_{measure.name}" + ("" if measure.is_gauge else "_total")
        assert re.search(rf"{name}\b", dashboard), name
        assert f"`{name}`" in page


def test_durations_are_recorded_for_those_who_ask(repository: SyncRepository) -> None:
    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    repository.listen(AcquireDurations(registry))
    provider = MeterProvider([reader])
    time_acquires(repository, meter_provider=provider)
    refuse_one(repository)
    found = samples(served(registry))
    labels = json.dumps({"namespace": "default", "outcome": "refused"})
    assert found["zae_limiter_acquire_seconds_count", labels] == 1
    data = reader.get_metrics_data()
    assert data is not None
    (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
    (point,) = metric.data.data_points
    assert isinstance(point, HistogramDataPoint)
    assert (metric.name, point.count) == ("zae_limiter.acquire.duration", 1)
    assert dict(point.attributes or {}) == {"namespace": "default", "outcome": "refused"}
    provider.shutdown()


def test_each_acquire_is_a_span_of_the_current_trace(repository: SyncRepository) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace_acquires(repository, tracer_provider=provider)
    with provider.get_tracer("test").start_as_current_span("request"):
        refuse_one(repository)
    span, request = exporter.get_finished_spans()
    assert span.parent is not None
    assert span.parent == request.get_span_context()
    assert dict(span.attributes or {}) == {
        "zae_limiter.namespace": "default",
        "zae_limiter.entity_id": "key-1",
        "zae_limiter.resource": "gpt-4",
        "zae_limiter.consume.rpd": 1,
        "zae_limiter.outcome": "refused",
    }
    assert span.status.is_unset
    provider.shutdown()


def test_refusals_are_logged_with_fields(
    repository: SyncRepository, caplog: pytest.LogCaptureFixture
) -> None:
    repository.listen(LogListener())
    with caplog.at_level(logging.INFO, "zae_limiter.acquires"):
        refuse_one(repository)
    (record,) = caplog.records
    assert record.message == "acquire of key-1/gpt-4: refused"
    fields = vars(record)["zae_limiter"]
    assert (fields["outcome"], fields["consume"]) == ("refused", {"rpd": 1})
    assert fields["retry_after_seconds"] > 1
