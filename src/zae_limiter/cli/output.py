"""How results are printed: JSON, ASCII grids and plain lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from ..core.limit import Limit
from .limit_syntax import format_limit

# Wide enough for any row: what reads a pipe wraps for itself.
_PIPE_COLUMNS = 100_000


def print_json(value: Any) -> None:
    """One JSON document."""
    click.echo(json.dumps(value, indent=2))


def print_limits(limits: Iterable[Limit]) -> None:
    """One line for each."""
    for limit in limits:
        click.echo(f"  {format_limit(limit)}")


def print_lines(lines: Iterable[str]) -> None:
    """One line for each."""
    for line in lines:
        click.echo(printable(line))


def print_fields(title: str, fields: dict[str, object]) -> None:
    """A heading, and names with their values below it; what is None is left out."""
    click.echo(printable(title))
    known = {name: value for name, value in fields.items() if value is not None}
    width = max(map(len, known), default=0) + 1
    for name, value in known.items():
        click.echo(f"  {name + ':':<{width}} {printable(str(value))}")


def print_table(
    headers: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()
) -> None:
    """An ASCII grid. `right` names the columns that hold numbers."""
    # Rich takes longer to import than most commands take to run.
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.ASCII2, header_style="")
    for header in headers:
        table.add_column(header, justify="right" if header in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(printable(str(cell)) for cell in row))
    width = None if sys.stdout.isatty() else _PIPE_COLUMNS
    Console(width=width, markup=False, emoji=False, highlight=False).print(table)


def printable(text: str) -> str:
    """Text that others stored, unable to control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
