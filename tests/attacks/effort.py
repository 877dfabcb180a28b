"""How hard an attack tries: a little in the test suite, and for long in `make attack`."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")
VARIABLE = "ZAEL_ATTACK"


def effort(usual: T, in_attack: T) -> T:
    """Return how much to try."""
    return in_attack if os.environ.get(VARIABLE) else usual
