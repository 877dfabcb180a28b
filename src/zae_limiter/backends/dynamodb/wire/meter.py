"""The meter counts requests and capacity units. Tests and benchmarks read it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ....core.stats import StoreTraffic
from ....local.fork_safety import new_lock


class OperationUnits(NamedTuple):
    """A key of `Meter.units` names the operation and the table or index that used units.
    `index_name` is empty for the table itself."""

    operation: str
    table_name: str
    index_name: str


class Meter:
    """The meter counts calls by operation, requests sent for them, the seconds those took, capacity
    units that answers report, and failed conditions: AWS bills those too, but reports no units for
    them."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self.calls: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.refused: Counter[str] = Counter()
        self.units: defaultdict[OperationUnits, float] = defaultdict(float)

    def count_request(self, operation: str, *, is_first: bool) -> None:
        """Count a request, and a call if the request is its first."""
        with self._lock:
            self.requests[operation] += 1
            if is_first:
                self.calls[operation] += 1

    def count_seconds(self, operation: str, seconds: float) -> None:
        """Count the time that a request took, whether it was answered or not."""
        with self._lock:
            self.seconds[operation] += seconds

    def count_refused(self, operation: str) -> None:
        """Count a request whose condition failed."""
        with self._lock:
            self.refused[operation] += 1

    def count_units(self, operation: str, content: Mapping[str, Any]) -> None:
        """Count the capacity units that an answer reports, if it does."""
        consumed = content.get("ConsumedCapacity")
        if not consumed:
            return
        with self._lock:
            for each in consumed if isinstance(consumed, list) else [consumed]:
                for index, units in _parts(each):
                    self.units[OperationUnits(operation, each["TableName"], index)] += units

    def traffic(self) -> StoreTraffic:
        """Return what has been counted so far."""
        with self._lock:
            units: Counter[str] = Counter()
            for used, amount in self.units.items():
                units[used.operation] += amount  # type: ignore[assignment]
            return StoreTraffic(
                dict(self.calls),
                dict(self.requests),
                dict(self.refused),
                units,
                dict(self.seconds),
            )


def _parts(consumed: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the table's own units, then the units of each index."""
    yield "", consumed.get("Table", consumed).get("CapacityUnits", 0)
    for kind in ("LocalSecondaryIndexes", "GlobalSecondaryIndexes"):
        for index, spent in consumed.get(kind, {}).items():
            yield index, spent["CapacityUnits"]
