"""This module draws sparklines: a series of values in one line of characters."""

from __future__ import annotations

from collections.abc import Sequence

from .chart import thinned

BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.-:=+*#"
POINTS = 24


def sparkline(values: Sequence[float], bars: str = BARS, points: int = POINTS) -> str:
    """Return a bar for each value, the highest for the largest. Negative values, which are windows
    in which more was given back than taken, show as the lowest."""
    shown = thinned(values, points)
    top = max(shown, default=0)
    last = len(bars) - 1
    return "".join(bars[0 if top <= 0 else max(0, round(v / top * last))] for v in shown)
