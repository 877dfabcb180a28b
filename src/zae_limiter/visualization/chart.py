"""This module draws column charts with characters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from .wrapping import wrapped

HEIGHT_ROWS = 10
MAX_POINTS = 60
# A blank and a line are between a label and the columns.
_FRAME = 2


def thinned(values: Sequence[float], points: int = MAX_POINTS) -> list[float]:
    """Return at most `points` values, each the mean of the neighbours that it stands for."""
    count = min(points, len(values))
    bounds = [place * len(values) // count for place in range(count)] if count else []
    parts = [values[i:j] for i, j in zip_longest(bounds, bounds[1:])]
    return [sum(part) / len(part) for part in parts]


def column_chart(
    title: str, values: Sequence[float], caption: str, width: int | None = None
) -> list[str]:
    """Draw a title, ten rows of columns over a labelled axis, and a caption, at most `width`
    columns wide. Negative values, which are windows in which more was given back than taken, show
    as nothing."""
    room = MAX_POINTS if width is None else width - len(_label(max([*values, 1.0]))) - _FRAME
    shown = thinned(values, max(1, min(room, MAX_POINTS)))
    top = max([*shown, 1.0])
    labels = [_label(top * row / HEIGHT_ROWS, top) for row in range(HEIGHT_ROWS, 0, -1)]
    margin = max(map(len, labels))
    rows = [
        f"{label:>{margin}} |{''.join(_cell(value, top, row) for value in shown)}".rstrip()
        for label, row in zip(labels, range(HEIGHT_ROWS, 0, -1), strict=True)
    ]
    axis = f"{0:>{margin}} +{'-' * len(shown)}"
    below = f"{'':>{margin}}  {caption}"
    return [title, *rows, axis, *wrapped(below, width, margin + _FRAME)]


def _label(value: float, top: float = HEIGHT_ROWS) -> str:
    """Return a number of the axis. Rows that are less than 1 apart would else have one label."""
    return f"{value:,.0f}" if top >= HEIGHT_ROWS else f"{value:.1f}"


def _cell(value: float, top: float, row: int) -> str:
    """Return a filled cell from half a row on, and in the lowest row for any value above zero."""
    height = value / top * HEIGHT_ROWS
    return "#" if height >= row - 0.5 or (row == 1 and value > 0) else " "


def side_by_side(charts: Iterable[Sequence[str]], gap: int = 4) -> list[str]:
    """Join charts line by line. Captions may have several lines."""
    kept = list(charts)
    widths = [max(map(len, chart)) for chart in kept]
    return [
        (" " * gap).join(f"{line:<{w}}" for line, w in zip(lines, widths, strict=True)).rstrip()
        for lines in zip_longest(*kept, fillvalue="")
    ]
