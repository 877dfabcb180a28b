"""This module chooses who watches the demo: a program, a file or pipe, or a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import click

from ..output import print_json
from .report import Report
from .view import View

_LINE_S = 1.0

Show = Callable[[View], None]


class Audience(Protocol):
    """An audience is shown moments of a run, then its report."""

    def watching(self, workers: int, url: str) -> AbstractContextManager[Show]:
        """Return a context that gives a function to be called with each moment."""

    def tell(self, report: Report) -> None:
        """Show the report of the run."""


def choose_audience(as_json: bool) -> Audience:
    """Return the audience that standard output is."""
    if as_json:
        return Program()
    return Terminal() if sys.stdout.isatty() else Pipe()


class Program:
    """A program is shown the report only, as JSON."""

    @contextmanager
    def watching(self, workers: int, url: str) -> Iterator[Show]:
        yield lambda view: None

    def tell(self, report: Report) -> None:
        print_json(report.to_dict())


class Pipe:
    """A pipe is shown plain lines without control codes."""

    @contextmanager
    def watching(self, workers: int, url: str) -> Iterator[Show]:
        click.echo(_headline(workers, url))
        due_s = _LINE_S

        def show(view: View) -> None:
            nonlocal due_s
            if view.elapsed_s >= due_s:
                due_s += _LINE_S
                click.echo(
                    f"{view.elapsed_s:4.0f} s: {view.admitted:,} calls admitted,"
                    f" {view.refused:,} refused"
                )

        yield show

    def tell(self, report: Report) -> None:
        from . import screen

        screen.make_console().print(screen.final(report, ascii_only=True))


class Terminal:
    """A terminal is redrawn with every moment."""

    @contextmanager
    def watching(self, workers: int, url: str) -> Iterator[Show]:
        from rich.live import Live

        from . import screen

        console = screen.make_console()
        console.print(_headline(workers, url), soft_wrap=True)
        with Live(console=console, auto_refresh=False) as live:
            yield lambda view: live.update(screen.live(view), refresh=True)

    def tell(self, report: Report) -> None:
        from . import screen

        screen.make_console().print(screen.final(report, ascii_only=False))


def _headline(workers: int, url: str) -> str:
    return f"{workers} process{'' if workers == 1 else 'es'} on {url}"
