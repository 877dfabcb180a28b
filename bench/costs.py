"""What calls to DynamoDB cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from operator import add

from zae_limiter.backends.dynamodb.table import Table

# On demand in us-east-1. An assumption: see https://aws.amazon.com/dynamodb/pricing/on-demand/
WCU_DOLLARS = 0.625e-6
RCU_DOLLARS = 0.125e-6

READS = {"BatchGetItem", "GetItem", "Query", "Scan", "TransactGetItems"}


@dataclass(frozen=True, slots=True)
class Cost:
    """Calls; write and read units that the server tells of, indexes included; writes whose
    condition failed: AWS bills one write unit for each, though no server here says so; and those
    of them that asked an item `again` that had refused one less than a second before."""

    calls: float = 0
    wcu: float = 0
    rcu: float = 0
    refused: float = 0
    again: float = 0

    @property
    def dollars(self) -> float:
        """What AWS bills."""
        return (self.wcu + self.refused) * WCU_DOLLARS + self.rcu * RCU_DOLLARS

    def __add__(self, other: Cost) -> Cost:
        return Cost(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: Cost) -> Cost:
        return self + other.each(-1)

    def each(self, times: int) -> Cost:
        """The part of one of so many."""
        return Cost(*(part / times for part in astuple(self)))


class Bill:
    """What a block of code cost, once it has ended."""

    def __init__(self) -> None:
        self.cost = Cost()


@contextmanager
def billed(table: Table) -> Iterator[Bill]:
    """Count what is asked of a table."""
    bill, measured = Bill(), table.measured
    table.measured = True
    before = _total(table)
    yield bill
    after = _total(table)
    table.measured = measured
    bill.cost = after - before


def _total(table: Table) -> Cost:
    meter = table.client.meter
    units: Counter[bool] = Counter()
    for charge, spent in meter.units.items():
        units[charge.operation in READS] += spent  # type: ignore[assignment]
    calls = sum(meter.requests.values())
    return Cost(calls, units[False], units[True], sum(meter.refused.values()))
