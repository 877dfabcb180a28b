"""What a hot parent comes to: an organisation above many keys, charged by every process."""

from __future__ import annotations

from ..costs import WCU_DOLLARS
from .lanes import item_writes_per_s, shards_needed
from .markdown import markdown

LOADS_PER_S = (100, 1000, 10_000, 100_000)
PROCESSES = (1, 4, 20, 50, 200)
HEADINGS = (
    "acquires/s",
    "processes",
    "writes/s, one item",
    "acquires per write",
    "shards needed",
    "writes/s, all shards",
    "acquires per write",
    "$ per million",
)
_MILLION = 1_000_000


def table() -> str:
    """The table of the guide."""
    rows = [_cells(load, processes) for load in LOADS_PER_S for processes in PROCESSES]
    return markdown(HEADINGS, rows)


def _cells(acquires_per_s: int, processes: int) -> list[str]:
    alone = item_writes_per_s(acquires_per_s, processes, 1)
    cells = [
        f"{acquires_per_s:,}",
        f"{processes}",
        f"{alone:,.0f}",
        f"{acquires_per_s / alone:,.1f}",
    ]
    shards = shards_needed(acquires_per_s, processes)
    if shards is None:
        return [*cells, "too many", "", "", ""]
    writes = shards * item_writes_per_s(acquires_per_s, processes, shards)
    dollars = writes / acquires_per_s * WCU_DOLLARS * _MILLION
    figures = [f"{writes:,.0f}", f"{acquires_per_s / writes:,.1f}", f"{dollars:.3f}"]
    return [*cells, f"{shards}", *figures]
