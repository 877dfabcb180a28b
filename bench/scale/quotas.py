"""Where AWS's own limits are met."""

from __future__ import annotations

from ..costs import RCU_DOLLARS, WCU_DOLLARS
from .fleet import FLEETS, KEYS
from .markdown import markdown
from .records import config_reads
from .store import INDEX_WCU
from .table import PARTITION_RCU_PER_S, PARTITION_WCU_PER_S

# What an account gets for one table without asking, and what a new table on demand begins with.
TABLE_WCU_PER_S = 40_000
NEW_TABLE_WCU_PER_S = 4_000
_HEADINGS = ("what", "figure")


def table() -> str:
    """The table of the guide."""
    return markdown(_HEADINGS, [[what, figure] for what, figure in _facts().items()])


def _facts() -> dict[str, str]:
    busiest = max(fleet.wcu_per_s for fleet in FLEETS)
    least = min(fleet.wcu_per_s for fleet in FLEETS)
    system = config_reads().system_records
    return {
        "write units these fleets need, least and most": f"{least:,.0f} and {busiest:,.0f}",
        "times the quota of a table": f"{least / TABLE_WCU_PER_S:.1f} and"
        f" {busiest / TABLE_WCU_PER_S:.1f}",
        "times what a new table on demand begins with": f"{least / NEW_TABLE_WCU_PER_S:.0f} and"
        f" {busiest / NEW_TABLE_WCU_PER_S:.0f}",
        "acquires/s of keys at one process within the quota": f"{TABLE_WCU_PER_S:,}",
        "config misses/s that the system record bears": _bearable(system),
        "new buckets/s that an index bears for one namespace": f"{PARTITION_WCU_PER_S:,}",
        "minutes until a million keys have their first bucket": _minutes(),
        "dollars for the first acquires of a million keys": _first_dollars(),
    }


def _bearable(system_records: float) -> str:
    return f"{PARTITION_RCU_PER_S / system_records:,.0f}" if system_records else "any number"


def _minutes() -> str:
    return f"{KEYS.entities / PARTITION_WCU_PER_S / 60:.0f}"


def _first_dollars() -> str:
    """One write finds nothing, one makes the item and its index entries."""
    wcu, rcu = 2 + INDEX_WCU, config_reads().records
    return f"{KEYS.entities * (wcu * WCU_DOLLARS + rcu * RCU_DOLLARS):.2f}"
