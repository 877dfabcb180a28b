"""Counts what was asked of DynamoDB and what it cost. Tests and benchmarks read it."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class OperationUnits(NamedTuple):
    """What capacity was spent on. `index_name` is empty for the table itself."""

    operation: str
    table_name: str
    index_name: str


class Meter:
    """Calls by operation, requests sent for them, the units that answers tell of, and requests
    whose condition failed: for those no answer tells of units, though AWS bills them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.units: defaultdict[OperationUnits, float] = defaultdict(float)

    def count_request(self, operation: str, *, is_first: bool) -> None:
        """A request, which is the first of its call or not."""
        with self._lock:
            self.requests[operation] += 1
            if is_first:
                self.calls[operation] += 1

    def count_refused(self, operation: str) -> None:
        """A condition of a request failed."""
        with self._lock:
            self.refused[operation] += 1

    def count_units(self, operation: str, content: Mapping[str, Any]) -> None:
        """What an answer says it cost, if it does."""
        consumed = content.get("ConsumedCapacity")
        if not consumed:
            return
        with self._lock:
            for each in consumed if isinstance(consumed, list) else [consumed]:
                for index, units in _parts(each):
                    self.units[OperationUnits(operation, each["TableName"], index)] += units


def _parts(consumed: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The table's own units, then those of each index."""
    yield "", consumed.get("Table", consumed).get("CapacityUnits", 0)
    for kind in ("LocalSecondaryIndexes", "GlobalSecondaryIndexes"):
        for index, spent in consumed.get(kind, {}).items():
            yield index, spent["CapacityUnits"]
