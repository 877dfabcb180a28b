"""This module draws ASCII grids, and records below each other where a grid does not fit."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from ..core.text import printable

Alignment = Literal["left", "center", "right"]
# Wide enough for any row: a folded row would break programs that read the table from a pipe.
_UNBOUNDED_COLUMNS = 100_000
# A cell is padded by a blank on each side, and a line is between each two.
_FRAME = 3


class TableRenderer:
    """A table renderer draws tables with aligned columns, to the left unless `alignments` says
    otherwise."""

    def __init__(self, alignments: Sequence[Alignment] = ()) -> None:
        self._alignments = alignments

    def render(
        self, headers: Sequence[str], rows: Iterable[Sequence[object]], width: int | None = None
    ) -> str:
        """Return the table as text. Where it would be wider than `width`, cells are wrapped between
        words; where that does not suffice, each row is a block of lines."""
        cells = [[printable(str(cell)) for cell in row] for row in rows]
        if width is None:
            return self._grid(headers, cells, None, _UNBOUNDED_COLUMNS)
        columns = _fit(headers, cells, width)
        if columns is None:
            return "\n\n".join(_block(headers, row, width) for row in cells)
        return self._grid(headers, cells, columns, width)

    def _grid(
        self,
        headers: Sequence[str],
        cells: Iterable[Sequence[str]],
        columns: Sequence[int] | None,
        width: int,
    ) -> str:
        # Rich takes longer to import than most commands take to run.
        from rich import box
        from rich.console import Console
        from rich.table import Table

        table = Table(box=box.ASCII2)
        for place, header in enumerate(headers):
            table.add_column(
                header,
                justify=self._alignment(place),
                overflow="fold",
                width=None if columns is None else columns[place],
            )
        for row in cells:
            table.add_row(*row)
        text = io.StringIO()
        console = Console(
            file=text, width=width, color_system=None, markup=False, emoji=False, highlight=False
        )
        console.print(table)
        return text.getvalue().rstrip("\n")

    def _alignment(self, place: int) -> Alignment:
        return self._alignments[place] if place < len(self._alignments) else "left"


def _fit(headers: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """Return a width for each column so that no word is broken; None when there is none."""
    from rich.cells import cell_len

    by_column = list(zip(headers, *cells, strict=True))
    widths = [max(map(cell_len, column)) for column in by_column]
    least = [
        max(cell_len(word) for cell in column for word in cell.split(" ")) for column in by_column
    ]
    room = width - _FRAME * len(widths) - 1
    while sum(widths) > room:
        # The column that can give most is narrowed first.
        spare, place = max(
            (w - low, at) for at, (w, low) in enumerate(zip(widths, least, strict=True))
        )
        if spare == 0:
            return None
        widths[place] -= min(spare, sum(widths) - room)
    return widths


def _block(headers: Sequence[str], row: Sequence[str], width: int) -> str:
    """Return a row as lines of a name and a value."""
    margin = max(map(len, headers)) + 2
    lines = (_lines(header, cell, margin, width) for header, cell in zip(headers, row, strict=True))
    return "\n".join(line for each in lines for line in each)


def _lines(header: str, cell: str, margin: int, width: int) -> Iterator[str]:
    from rich.console import Console
    from rich.text import Text

    wrapped = Text(cell).wrap(Console(), max(width - margin, 2), overflow="fold")
    for place, part in enumerate(wrapped or [Text()]):
        name = f"{header}:" if place == 0 else ""
        yield f"{name:<{margin}}{part.plain}".rstrip()
