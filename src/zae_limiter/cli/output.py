"""This module prints results: JSON, ASCII grids and plain lines."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from ..core.limit import Limit
from ..core.limit_syntax import format_limit
from ..core.text import printable
from ..visualization.table import TableRenderer
from ..visualization.wrapping import wrapped


def print_json(value: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(value, indent=2))


def print_limits(limits: Iterable[Limit]) -> None:
    """Print one line for each limit."""
    for limit in limits:
        click.echo(f"  {format_limit(limit)}")


def print_lines(lines: Iterable[str], hang: int = 2) -> None:
    """Print one line for each text, on a terminal wrapped between words: more lines are indented
    by `hang`."""
    width = terminal_width()
    for line in lines:
        for part in wrapped(printable(line), width, hang):
            click.echo(part)


def print_line(text: str) -> None:
    """Print one line of text, on a terminal wrapped between words."""
    print_lines([text])


def print_fields(title: str, fields: dict[str, object]) -> None:
    """Print a heading, and names with their values below it; values of None are left out."""
    print_lines([title])
    known = {name: value for name, value in fields.items() if value is not None}
    width = max(map(len, known), default=0) + 1
    lines = (f"  {name + ':':<{width}} {value}" for name, value in known.items())
    print_lines(lines, hang=width + 3)


def print_table(
    headers: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()
) -> None:
    """Print an ASCII grid. `right` names the columns that hold numbers."""
    table = TableRenderer(["right" if header in right else "left" for header in headers])
    click.echo(table.render(headers, rows, terminal_width()))


def terminal_width() -> int | None:
    """Return the columns of the terminal; None when standard output is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
