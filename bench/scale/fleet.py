"""What a large fleet costs: arithmetic from stated inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from math import ceil, exp

from ..costs import RCU_DOLLARS, WCU_DOLLARS
from .markdown import markdown
from .records import bucket_bytes, config_reads
from .table import PARTITION_RCU_PER_S, PARTITION_WCU_PER_S

# Provisioned capacity in us-east-1, by the hour, and storage by the GB and month. Assumptions, as
# the prices on demand are: see https://aws.amazon.com/dynamodb/pricing/
WCU_HOUR_DOLLARS = 0.00065
RCU_HOUR_DOLLARS = 0.00013
GB_MONTH_DOLLARS = 0.25
# How much of what is provisioned is used: no load is level.
UTILIZATION = 0.7
HOURS_PER_MONTH = 730
_SECONDS_PER_MONTH = 3600 * HOURS_PER_MONTH
_MILLION = 1_000_000
_PARTITION_BYTES = 10 * 1024**3


# How much of its limit each entity uses.
USED = 0.1


def lost_per_acquire(seen_by: int) -> float:
    """How many writes to a full bucket are refused for each that is not: if another one of so
    many processes was there within twice the time in which the bucket regains an acquire."""
    return (1 - 1 / seen_by) * (1 - exp(-2 * USED))


@dataclass(frozen=True, slots=True)
class Level:
    """Entities at one level of the cascade, all as busy as each other."""

    entities: int


@dataclass(frozen=True)
class Fleet:
    """What is asked, and of what. All stay below their limits, so their buckets are full.

    `levels`: the keys first, then their ancestors. `homes`: how many of the processes each key
    is seen by. `adjusts`: whether every acquire is corrected at its end.
    """

    title: str
    levels: Sequence[Level]
    acquires_per_s: int = 100_000
    processes: int = 200
    homes: int = 200
    adjusts: bool = False
    cache_ttl_s: int = 60

    @property
    def wcu_per_s(self) -> float:
        """A write at every level for each acquire, since entities this cold hardly ever share
        one; and those that are lost."""
        lost = sum(lost_per_acquire(self._seen_by(level)) for level in self.levels)
        return self.acquires_per_s * (len(self.levels) * (1 + self.adjusts) + lost)

    @cached_property
    def misses_per_s(self) -> float:
        """How often a process has to read what is configured for an entity. Once it knows, it
        does for the lifetime of its cache, and then until the next acquire nobody asks."""
        return sum(self._misses_per_s(level, self._seen_by(level)) for level in self.levels)

    def _seen_by(self, level: Level) -> int:
        return self.homes if level is self.levels[0] else self.processes

    def _misses_per_s(self, level: Level, seen_by: int) -> float:
        pairs = level.entities * seen_by
        return pairs / (self.cache_ttl_s + pairs / self.acquires_per_s)

    @property
    def rcu_per_s(self) -> float:
        """Reads of configuration: an entity's own with each miss, and what all share once in
        the lifetime of each process's cache."""
        first, other = config_reads()
        return self.misses_per_s * other.rcu + self._lifetimes_per_s * (first.rcu - other.rcu)

    @property
    def system_rcu_per_s(self) -> float:
        """Reads of the one record that all share."""
        first, other = config_reads()
        return self.misses_per_s * other.system_rcu + self._lifetimes_per_s * first.system_rcu

    @property
    def _lifetimes_per_s(self) -> float:
        return self.processes / self.cache_ttl_s

    @property
    def storage_bytes(self) -> int:
        """A bucket for each entity."""
        return sum(level.entities for level in self.levels) * bucket_bytes()

    @property
    def partitions(self) -> int:
        """How many AWS needs at least, if all are used alike."""
        return max(
            ceil(self.wcu_per_s / PARTITION_WCU_PER_S + self.rcu_per_s / PARTITION_RCU_PER_S),
            ceil(self.storage_bytes / _PARTITION_BYTES),
        )

    @property
    def on_demand_dollars(self) -> float:
        """A month of it, storage included."""
        per_s = self.wcu_per_s * WCU_DOLLARS + self.rcu_per_s * RCU_DOLLARS
        return per_s * _SECONDS_PER_MONTH + self.storage_dollars

    @property
    def provisioned_dollars(self) -> float:
        """The same, with capacity that is provisioned for it and some to spare."""
        per_hour = self.wcu_per_s * WCU_HOUR_DOLLARS + self.rcu_per_s * RCU_HOUR_DOLLARS
        return per_hour / UTILIZATION * HOURS_PER_MONTH + self.storage_dollars

    @property
    def storage_dollars(self) -> float:
        """A month of storage."""
        return self.storage_bytes / 1e9 * GB_MONTH_DOLLARS

    def per_million(self, dollars_per_month: float) -> float:
        """What a million acquires are of it."""
        return dollars_per_month * _MILLION / (self.acquires_per_s * _SECONDS_PER_MONTH)


KEYS, PROJECTS, ORGS = Level(1_000_000), Level(20_000), Level(1_000)
FLEETS = (
    Fleet("any key at any process", (KEYS,)),
    Fleet("each key at one process", (KEYS,), homes=1),
    Fleet("the same, configuration cached for an hour", (KEYS,), homes=1, cache_ttl_s=3600),
    Fleet("each key at one process, with adjust", (KEYS,), homes=1, adjusts=True),
    Fleet("each key at one process, under organisations", (KEYS, ORGS), homes=1),
    Fleet("the same, with projects between", (KEYS, PROJECTS, ORGS), homes=1),
)
HEADINGS = (
    "fleet",
    "WCU/s",
    "config misses/s",
    "RCU/s",
    "RCU/s of the system record",
    "partitions",
    "GB",
    "on demand, $/month",
    "$ per million",
    "provisioned, $/month",
    "$ per million",
)


def table(fleets: Sequence[Fleet] = FLEETS) -> str:
    """The table of the guide."""
    return markdown(HEADINGS, [_cells(fleet) for fleet in fleets])


def to_json(fleet: Fleet) -> dict[str, object]:
    """What is stated, and what follows."""
    stated = {f.name: getattr(fleet, f.name) for f in fields(fleet) if f.name != "levels"}
    return {
        **stated,
        "entities": [level.entities for level in fleet.levels],
        "wcu_per_s": fleet.wcu_per_s,
        "rcu_per_s": fleet.rcu_per_s,
        "misses_per_s": fleet.misses_per_s,
        "partitions": fleet.partitions,
        "storage_bytes": fleet.storage_bytes,
        "on_demand_dollars_per_month": fleet.on_demand_dollars,
        "provisioned_dollars_per_month": fleet.provisioned_dollars,
    }


def _cells(fleet: Fleet) -> list[str]:
    return [
        fleet.title,
        f"{fleet.wcu_per_s:,.0f}",
        f"{fleet.misses_per_s:,.0f}",
        f"{fleet.rcu_per_s:,.0f}",
        f"{fleet.system_rcu_per_s:.3g}",
        f"{fleet.partitions:,}",
        f"{fleet.storage_bytes / 1e9:.1f}",
        f"{fleet.on_demand_dollars:,.0f}",
        f"{fleet.per_million(fleet.on_demand_dollars):.3f}",
        f"{fleet.provisioned_dollars:,.0f}",
        f"{fleet.per_million(fleet.provisioned_dollars):.3f}",
    ]
