"""The statistics of a repository as measures, which every exporter of metrics reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ..core.stats import LimiterStats
from ..repository_base import RepositoryBase

PREFIX = "zae_limiter"
_STORE = "store_"
BREAKER_STATES = ("closed", "half-open", "open")
Values = Mapping[tuple[str, ...], float]


class Measure(NamedTuple):
    """A count that only grows, with a value for each set of labels; or a gauge, which does not.

    `name` has no prefix and no suffix: exporters add theirs.
    """

    name: str
    meaning: str
    labels: tuple[str, ...]
    values: Values
    is_gauge: bool = False


def measures_of(repositories: Sequence[RepositoryBase]) -> list[Measure]:
    """Return the measures of repositories together, with the namespace as their first label.

    Namespaces of one name are added up: a label set that is told twice is an error to Prometheus.
    The calls of a store that namespaces share are told once, with the first of them.
    """
    merged: dict[str, Measure] = {}
    seen: set[int] = set()
    for repository in repositories:
        store, namespace = id(repository.scope.store), repository.namespace_name
        for measure in measures(repository.get_stats()):
            kept = {} if measure.name.startswith(_STORE) and store in seen else measure.values
            values = {(namespace, *labels): value for labels, value in kept.items()}
            before = merged.get(measure.name)
            merged[measure.name] = measure._replace(
                labels=("namespace", *measure.labels),
                values=values if before is None else _added(before, values),
            )
        seen.add(store)
    return list(merged.values())


def _added(before: Measure, more: Values) -> Values:
    """Add values to those of a measure. Of a gauge, the largest counts: the worst breaker."""
    total = dict(before.values)
    for labels, value in more.items():
        known = total.get(labels, 0.0)
        total[labels] = max(known, value) if before.is_gauge else known + value
    return total


def measures(stats: LimiterStats) -> Iterator[Measure]:
    """Yield every measure, also those that are still empty."""
    outcomes: Values = {
        ("admitted",): stats.admitted,
        ("refused",): stats.refused,
        ("degraded",): stats.degraded,
        ("unavailable",): stats.unavailable,
    }
    yield Measure("acquires", "Acquires by how they ended.", ("outcome",), outcomes)
    refusals: Values = {(name, level): n for (name, level), n in stats.refused_by_limit.items()}
    yield Measure("refusals", "Limits that refused an acquire.", ("limit", "level"), refusals)
    waited: Values = {(): stats.waited}
    yield Measure("waits", "Acquires admitted after waiting.", (), waited)
    lost: Values = {(): stats.lost}
    yield Measure("lost_writes", "Refunds and corrections not written.", (), lost)
    batches: Values = {(): stats.batches}
    yield Measure("batches", "Writes that several callers shared.", (), batches)
    batched: Values = {(): stats.batched}
    yield Measure("batched", "Callers that shared a write.", (), batched)
    cache, traffic = stats.cache, stats.traffic
    breaker: Values = {(): BREAKER_STATES.index(cache.breaker)}
    yield Measure("breaker", "The breaker: 0 closed, 1 half-open, 2 open.", (), breaker, True)
    looks: Values = {("hit",): cache.hits, ("miss",): cache.misses}
    yield Measure("config_reads", "Reads of configuration, by the cache.", ("cache",), looks)
    recalled: Values = {(): cache.local_rejections}
    yield Measure("known_refusals", "Refusals without a call to the store.", (), recalled)
    for name, meaning, counts in (
        ("store_calls", "Calls to the store.", traffic.calls),
        ("store_requests", "Requests sent for calls, repeated ones included.", traffic.requests),
        ("store_failed_conditions", "Writes whose condition failed.", traffic.failed_conditions),
        ("store_seconds", "Seconds that requests to the store took.", traffic.seconds),
        ("store_units", "Capacity units that the store reported.", traffic.units),
    ):
        values: Values = {(operation,): float(count) for operation, count in counts.items()}
        yield Measure(name, meaning, ("operation",), values)
