"""This module collects the workers' logs by bucket and limit."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

Account = tuple[str, str]
"""An account is an entity and one of its limits."""


@dataclass(slots=True)
class Movement:
    """A movement is tokens that a call took (positive) or gave back, some time between its two
    times.

    `ended_ms` is None for a correction whose end was not logged.
    """

    began_ms: int
    ended_ms: int | None
    amount_milli: int
    admitted: bool


@dataclass(frozen=True, slots=True)
class Tally:
    """A tally is the sums of one limit: millitokens, and how often this limit refused a call."""

    admitted_milli: int = 0
    corrected_milli: int = 0
    refused: int = 0


@dataclass(slots=True)
class Record:
    """A record grows by one line of a log at a time."""

    movements: dict[Account, list[Movement]] = field(default_factory=lambda: defaultdict(list))
    tallies: dict[Account, Tally] = field(default_factory=lambda: defaultdict(Tally))
    admitted: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    refused: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    outages: list[str] = field(default_factory=list)
    _open: dict[tuple[int, int], list[Movement]] = field(default_factory=dict)

    def add(self, worker: int, line: str) -> None:
        """Add a line of a worker's log."""
        said = json.loads(line)
        match said["kind"]:
            case "ready":
                return
            case "admitted":
                self.admitted[worker] += 1
                self._move(said, admitted=True)
            case "correcting":
                self._open[worker, said["number"]] = self._move(said, admitted=False)
            case "corrected":
                for movement in self._open.pop((worker, said["number"])):
                    movement.ended_ms = said["ended_ms"]
            case "refused":
                self.refused[worker] += 1
                for entity_id, limit_name in said["short"]:
                    self._count((entity_id, limit_name), refused=1)
            case "unavailable":
                self.outages.append(said["reason"])
            case unknown:
                raise ValueError(f"no record is of kind {unknown!r}")

    def _move(self, said: dict[str, Any], *, admitted: bool) -> list[Movement]:
        moved = []
        for entity_id, amounts_milli in said["moves"].items():
            for limit_name, amount_milli in amounts_milli.items():
                if amount_milli:
                    movement = Movement(
                        said["began_ms"], said.get("ended_ms"), amount_milli, admitted
                    )
                    self._add((entity_id, limit_name), movement)
                    moved.append(movement)
        return moved

    def _add(self, account: Account, movement: Movement) -> None:
        self.movements[account].append(movement)
        if movement.admitted:
            self._count(account, admitted_milli=movement.amount_milli)
        else:
            self._count(account, corrected_milli=movement.amount_milli)

    def _count(
        self,
        account: Account,
        *,
        admitted_milli: int = 0,
        corrected_milli: int = 0,
        refused: int = 0,
    ) -> None:
        seen = self.tallies[account]
        self.tallies[account] = Tally(
            seen.admitted_milli + admitted_milli,
            seen.corrected_milli + corrected_milli,
            seen.refused + refused,
        )

    @property
    def longest_call_ms(self) -> int:
        """The longest time between a logged moment and the moment at which the store acted."""
        calls = (movement for moved in self.movements.values() for movement in moved)
        return max((m.ended_ms - m.began_ms for m in calls if m.ended_ms is not None), default=0)
