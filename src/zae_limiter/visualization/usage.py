"""This module shows usage snapshots as a table or as charts."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from ..core.models import UsageSnapshot
from ..core.text import printable
from .chart import column_chart, side_by_side
from .sparkline import BARS, sparkline
from .table import Alignment, TableRenderer
from .wrapping import wrapped

_HEADERS = ("Window Start", "Type", "Resource", "Entity", "Events", "Counters")
_ALIGNMENTS: tuple[Alignment, ...] = ("left", "left", "left", "left", "right", "left")
_PLAIN_WIDTH = 80


class UsageFormatter(Enum):
    """A formatter is a way to show usage."""

    TABLE = "table"
    PLOT = "plot"
    SPARK = "spark"


def format_usage_snapshots(
    snapshots: Sequence[UsageSnapshot],
    formatter: UsageFormatter = UsageFormatter.TABLE,
    *,
    width: int | None = None,
    bars: str = BARS,
) -> str:
    """Return the snapshots as text, at most `width` columns wide if that is given. `bars` are the
    characters of sparklines, from the lowest to the highest."""
    if formatter is UsageFormatter.SPARK:
        return _spark(snapshots, bars, width)
    if formatter is UsageFormatter.PLOT:
        return _plot(snapshots, width or _PLAIN_WIDTH)
    return TableRenderer(_ALIGNMENTS).render(_HEADERS, map(_row, snapshots), width)


def _row(snapshot: UsageSnapshot) -> tuple[str, ...]:
    used = ", ".join(f"{name}={amount:,}" for name, amount in sorted(snapshot.counters.items()))
    return (
        snapshot.window_start,
        snapshot.window_type,
        snapshot.resource,
        snapshot.entity_id,
        f"{snapshot.total_events:,}",
        used,
    )


def _plot(snapshots: Sequence[UsageSnapshot], width: int) -> str:
    """Draw a chart for each limit and window type, oldest on the left, two beside each other where
    they fit."""
    charts = [
        column_chart(
            f"{printable(name)} ({window_type})", list(series.values()), _span(series), width
        )
        for (window_type, name), series in sorted(usage_series(snapshots).items())
    ]
    blocks: list[list[str]] = []
    while charts:
        pair = side_by_side(charts[:2])
        fits = max(map(len, pair)) <= width
        blocks.append(pair if fits else list(charts[0]))
        charts = charts[2:] if fits else charts[1:]
    return "\n\n".join("\n".join(block) for block in blocks)


def usage_series(snapshots: Sequence[UsageSnapshot]) -> dict[tuple[str, str], dict[str, float]]:
    """Add up usage in each window, over entities and resources, by window type and limit."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for snapshot in sorted(snapshots, key=lambda each: each.window_start):
        for name, amount in snapshot.counters.items():
            series = found.setdefault((snapshot.window_type, name), {})
            series[snapshot.window_start] = series.get(snapshot.window_start, 0) + amount
    return found


def _spark(snapshots: Sequence[UsageSnapshot], bars: str, width: int | None) -> str:
    """Draw a line for each limit and window type, wrapped between words if it is too long."""
    rows = [
        (f"{printable(name)} ({window_type})", list(series.values()), _span(series))
        for (window_type, name), series in sorted(usage_series(snapshots).items())
    ]
    margin = max((len(title) for title, _, _ in rows), default=0)
    lines = (
        f"{title:<{margin}}  {sparkline(values, bars)}  at most {max(values):,.0f}, {span}"
        for title, values, span in rows
    )
    return "\n".join(line for each in lines for line in wrapped(each, width))


def _span(series: dict[str, float]) -> str:
    first, last = min(series), max(series)
    return first if first == last else f"{first} to {last}"
