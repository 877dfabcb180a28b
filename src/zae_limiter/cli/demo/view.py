"""This module is a moment of the demo, as it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .record import Account, Tally


@dataclass(frozen=True, slots=True)
class View:
    """A view says how far the run is, and how each limit stands."""

    elapsed_s: float
    seconds: float
    admitted: int
    refused: int
    tallies: Mapping[Account, Tally]
    balances: Mapping[Account, int]
