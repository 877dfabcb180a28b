"""How hard an attack tries: a little in the test suite, and for long in `make attack`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
# The file in which attacks note what they tried; set by `python -m tests.attacks`.
VARIABLE = "ZAEL_ATTACK"
# No case of an attack takes much longer, however slow the machine is.
LONGEST_S = 30


def effort(usual: T, in_attack: T) -> T:
    """Return how much to try."""
    return in_attack if os.environ.get(VARIABLE) else usual


def note_tried(what: str, count: int) -> None:
    """Note how often something was tried, if this is an attack."""
    path = os.environ.get(VARIABLE)
    if path:
        with Path(path).open("a", encoding="utf-8") as log:
            log.write(f"{count} {what}\n")
