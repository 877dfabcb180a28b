"""This module draws ASCII grids."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Literal

from ..core.text import printable

Alignment = Literal["left", "center", "right"]
# Wide enough for any row: a folded row would break programs that read the table from a pipe.
_UNBOUNDED_COLUMNS = 100_000


class TableRenderer:
    """A table renderer draws tables with aligned columns, to the left unless `alignments` says
    otherwise."""

    def __init__(self, alignments: Sequence[Alignment] = ()) -> None:
        self._alignments = alignments

    def render(
        self, headers: Sequence[str], rows: Iterable[Sequence[object]], width: int | None = None
    ) -> str:
        """Return the table as text; cells are folded where the table would be wider than
        `width`."""
        # Rich takes longer to import than most commands take to run.
        from rich import box
        from rich.console import Console
        from rich.table import Table

        table = Table(box=box.ASCII2)
        for place, header in enumerate(headers):
            table.add_column(header, justify=self._alignment(place), overflow="fold")
        for row in rows:
            table.add_row(*(printable(str(cell)) for cell in row))
        text = io.StringIO()
        console = Console(
            file=text,
            width=width or _UNBOUNDED_COLUMNS,
            color_system=None,
            markup=False,
            emoji=False,
            highlight=False,
        )
        console.print(table)
        return text.getvalue().rstrip("\n")

    def _alignment(self, place: int) -> Alignment:
        return self._alignments[place] if place < len(self._alignments) else "left"
