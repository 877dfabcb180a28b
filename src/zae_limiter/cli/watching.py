"""This module shows a result again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import click

watch_option = click.option(
    "--watch",
    type=click.FloatRange(0.1),
    metavar="SECONDS",
    help="Show it again and again, until Ctrl-C.",
)


def watched(watch_s: float | None, show: Callable[[], None], *, as_text: bool) -> None:
    """Call `show` once, or each `watch_s` seconds until the user interrupts. On a terminal, text
    takes the place of the text before it."""
    while True:
        show()
        if watch_s is None:
            return
        sys.stdout.flush()
        time.sleep(watch_s)
        if as_text and sys.stdout.isatty():
            click.clear()
