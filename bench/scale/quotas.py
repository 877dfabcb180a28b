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
    return {
        "write units these fleets need, least and most": f"{least:,.0f} and {busiest:,.0f}",
        "times the quota of a table": f"{least / TABLE_WCU_PER_S:.1f} and"
        f" {busiest / TABLE_WCU_PER_S:.1f}",
        "times what a new table on demand begins with": f"{least / NEW_TABLE_WCU_PER_S:.0f} and"
        f" {busiest / NEW_TABLE_WCU_PER_S:.0f}",
        "acquires/s of keys at one process within the quota": f"{TABLE_WCU_PER_S:,}",
        "processes that the system record bears": _processes(),
        "new buckets/s that an index bears for one namespace": f"{PARTITION_WCU_PER_S:,}",
        "minutes until a million keys have their first bucket": _minutes(),
        "dollars for the first acquires of a million keys": _first_dollars(),
    }


def _processes() -> str:
    """Each reads it once in the lifetime of its cache."""
    first, _ = config_reads()
    return f"{PARTITION_RCU_PER_S / first.system_rcu * FLEETS[0].cache_ttl_s:,.0f}"


def _minutes() -> str:
    return f"{KEYS.entities / PARTITION_WCU_PER_S / 60:.0f}"


def _first_dollars() -> str:
    """One write finds nothing, one makes the item and its index entries."""
    wcu, rcu = 2 + INDEX_WCU, config_reads()[1].rcu
    return f"{KEYS.entities * (wcu * WCU_DOLLARS + rcu * RCU_DOLLARS):.2f}"
