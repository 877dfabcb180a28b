"""A run in figures, and figures as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from ..costs import RCU_DOLLARS, WCU_DOLLARS
from .hot_key import Run
from .markdown import markdown

_MILLION = 1_000_000
HEADINGS = (
    "bucket",
    "acquires/s",
    "processes",
    "admitted/s",
    "refused/s",
    "failed/s",
    "writes/s",
    "acquires per write",
    "lost writes",
    "shards",
    "hottest item, WCU/s",
    "throttled/s",
    "p50 ms",
    "p99 ms",
    "$ per million",
)


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run came to. `lost_part`: writes whose condition failed, of all writes. Latencies
    are those of admitted acquires. Dollars are those of a million admitted acquires."""

    bucket: str
    acquires_per_s: int
    processes: int
    admitted_per_s: float
    refused_per_s: float
    failed_per_s: float
    writes_per_s: float
    acquires_per_write: float
    lost_part: float
    shards: int
    hottest_wcu_per_s: float
    throttled_per_s: float
    p50_ms: float
    p99_ms: float
    dollars_per_million: float


def figures(run: Run) -> Figures:
    """Everything by the second, where it is not a ratio."""
    case, answers, tally = run.case, run.answers, run.tally
    admitted = len(answers.admitted_us)
    writes = tally.granted + tally.refused
    dollars = tally.wcu * WCU_DOLLARS + tally.rcu * RCU_DOLLARS
    return Figures(
        case.level.name,
        case.acquires_per_s,
        case.processes,
        admitted / case.seconds,
        answers.refused / case.seconds,
        answers.failed / case.seconds,
        writes / case.seconds,
        admitted / max(1, writes),
        tally.refused / max(1, writes),
        run.shards,
        max(tally.spent.values(), default=0) / case.seconds,
        tally.throttled / case.seconds,
        percentile(answers.admitted_us, 50) / 1000,
        percentile(answers.admitted_us, 99) / 1000,
        dollars * _MILLION / max(1, admitted),
    )


def percentile(values: Sequence[int], percent: int) -> int:
    """The least of the values that so many percent do not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[ceil(len(ordered) * percent / 100) - 1] if ordered else 0


def table(found: Sequence[Figures]) -> str:
    """The table of the guide."""
    return markdown(HEADINGS, [_cells(each) for each in found])


def _cells(each: Figures) -> list[str]:
    return [
        each.bucket,
        f"{each.acquires_per_s:,}",
        f"{each.processes}",
        f"{each.admitted_per_s:,.0f}",
        f"{each.refused_per_s:,.0f}",
        f"{each.failed_per_s:,.0f}",
        f"{each.writes_per_s:,.0f}",
        f"{each.acquires_per_write:.3g}",
        f"{each.lost_part:.0%}",
        f"{each.shards}",
        f"{each.hottest_wcu_per_s:,.0f}",
        f"{each.throttled_per_s:,.0f}",
        f"{each.p50_ms:.1f}",
        f"{each.p99_ms:.1f}",
        f"{each.dollars_per_million:.3f}",
    ]
