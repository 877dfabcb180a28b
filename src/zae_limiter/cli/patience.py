"""This module tells the user that a slow step is still going on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

_SILENCE_S = 2.0


@contextmanager
def patience(doing: str, silence_s: float = _SILENCE_S) -> Iterator[None]:
    """Say on stderr which step is running, and for how long, while it is slow."""
    done = threading.Event()
    teller = threading.Thread(target=_tell, args=(doing, silence_s, done), daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _tell(doing: str, silence_s: float, done: threading.Event) -> None:
    began = time.monotonic()
    while not done.wait(silence_s):
        click.echo(f"{doing}: {time.monotonic() - began:.0f} s so far", err=True)
