"""How hard an attack tries: a little in the test suite, and for long in `make attack`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
# The file in which attacks note what they tried; set by `python -m tests.attacks`.
VARIABLE = "ZAEL_ATTACK"
# Read before any test runs: tests clear what the environment says of the limiter.
_LOG = os.environ.get(VARIABLE)
# No case of an attack takes much longer, however slow the machine is.
LONGEST_S = 30


def effort(usual: T, in_attack: T) -> T:
    """Return how much to try."""
    return in_attack if _LOG else usual


def note_tried(what: str, count: int) -> None:
    """Note how often something was tried, if this is an attack."""
    if _LOG:
        with Path(_LOG).open("a", encoding="utf-8") as log:
            log.write(f"{count} {what}\n")
