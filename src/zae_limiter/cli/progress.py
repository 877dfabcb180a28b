"""This module shows how far a long change has come."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

# A change of fewer steps is over before anybody looks.
_LEAST_STEPS = 100
_LINES = 20


def progress_on_stderr(doing: str) -> Callable[[int, int], None]:
    """Return a function that is told how many steps are done, of how many. It writes a line on
    stderr now and then, on a terminal always the same line."""
    is_terminal = sys.stderr.isatty()

    def tell(done: int, steps: int) -> None:
        if steps < _LEAST_STEPS or (done % max(1, steps // _LINES) and done < steps):
            return
        text = f"{doing}: {done:,} of {steps:,}"
        is_over = done == steps or not is_terminal
        click.echo(f"\r{text}" if is_terminal else text, nl=is_over, err=True)

    return tell
