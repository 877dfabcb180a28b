"""Computes what a small and a large month cost on DynamoDB, from units and list prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

from bench.costs import RCU_DOLLARS, WCU_DOLLARS
from bench.scale.fleet import GB_MONTH_DOLLARS, HOURS_PER_MONTH
from bench.scale.markdown import markdown
from bench.scale.records import bucket_bytes

_SECONDS = HOURS_PER_MONTH * 3600
# The stack's own settings: hours and days are counted, in batches of five seconds.
_WINDOWS = 2
_BATCH_S = 5
_CACHE_S = 60
_ALARMS_DOLLARS = 0.70
_GB = 1024**3


@dataclass(frozen=True, slots=True)
class Month:
    """A month of use: `entities` counts those of each level, the callers' own first. Every acquire
    is settled with one correction at every level."""

    title: str
    acquires: int
    entities: Sequence[int]
    processes: int

    @property
    def writes(self) -> float:
        """An acquire and its correction at each level."""
        return 2.0 * self.acquires * len(self.entities)

    @property
    def reads(self) -> float:
        """Each process reads the configuration of an entity when it has forgotten it."""
        per_pair_s = self.acquires / _SECONDS
        pairs = [count * self.processes for count in self.entities]
        return sum(pair / (_CACHE_S + pair / per_pair_s) * _SECONDS for pair in pairs)

    @property
    def counted(self) -> float:
        """Writes of usage: one for each bucket and window that occurs in a batch."""
        per_s = self.acquires / _SECONDS
        seen = (n * (1 - exp(-per_s * _BATCH_S / n)) for n in self.entities)
        return sum(seen) / _BATCH_S * _SECONDS * _WINDOWS

    @property
    def gigabytes(self) -> float:
        """The buckets with their index entries."""
        return sum(self.entities) * bucket_bytes() / _GB

    def dollars(self) -> list[float]:
        """What each part costs."""
        return [
            self.writes * WCU_DOLLARS,
            self.reads * RCU_DOLLARS,
            self.counted * WCU_DOLLARS,
            self.gigabytes * GB_MONTH_DOLLARS,
            _ALARMS_DOLLARS,
        ]


MONTHS = (
    Month("small", acquires=1_000_000, entities=(200,), processes=2),
    Month("large", acquires=1_000_000_000, entities=(100_000, 1_000), processes=50),
)
_PARTS = (
    "writes of acquires and corrections",
    "reads of configuration",
    "counting usage",
    "storage",
    "alarms",
)


def months() -> str:
    """The table of the guide."""
    columns = [[*month.dollars(), sum(month.dollars())] for month in MONTHS]
    rows = [
        [part, *(f"{column[line]:,.2f}" for column in columns)]
        for line, part in enumerate((*_PARTS, "**together**"))
    ]
    return markdown(("$ a month", *(month.title for month in MONTHS)), rows)
