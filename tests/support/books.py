"""What a client says it charged, line by line, so that it can be read also after a crash.

Before each step a client writes down how much it may change, afterwards whether it did. A
step that never ended may have been carried out or not: only bounds are known of it.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from zae_limiter.core.limit import MILLI
from zae_limiter.testing import Event

ACQUIRES = "acquires"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Book:
    """Where one client writes. Each line goes to the file at once."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._numbers = count()

    def begin(
        self, changes: Mapping[str, int], acquires: int = 0, *, admitted: bool = False
    ) -> int:
        """A step is about to change so many tokens. Returns its number."""
        number = next(self._numbers)
        whole = {**changes, ACQUIRES: acquires}
        self._write(step=number, changes=whole, admitted=admitted)
        return number

    def end(self, number: int, *, done: bool = True) -> None:
        """It is known whether the step was carried out."""
        self._write(end=number, done=done)

    def note(self, what: str) -> None:
        """Something happened that is worth counting."""
        self._write(note=what)

    def _write(self, **line: Any) -> None:
        os.write(self._file, (json.dumps({"at": now_ms(), **line}) + "\n").encode())


@dataclass
class Account:
    """What all clients together say."""

    events: list[Event] = field(default_factory=list)
    charged: Counter[str] = field(default_factory=Counter)
    least: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    longest_ms: int = 0
    open_steps: int = 0
    began_ms: float = math.inf
    ended_ms: float = -math.inf

    def settle(self, begun: Mapping[str, Any], ended: Mapping[str, Any]) -> None:
        """A step whose end is known."""
        duration_ms = ended["at"] - begun["at"]
        self.longest_ms = max(self.longest_ms, duration_ms)
        self.began_ms = min(self.began_ms, begun["at"])
        self.ended_ms = max(self.ended_ms, ended["at"])
        if not ended["done"]:
            return
        for name, change in begun["changes"].items():
            self.charged[name] += change
            if change and name != ACQUIRES:
                # A refund may be used by others as soon as it is on its way.
                at_ms = ended["at"] if change > 0 else begun["at"]
                self.events.append(Event(at_ms, name, change * MILLI, begun["admitted"]))

    def doubt(self, begun: Mapping[str, Any]) -> None:
        """A step that may or may not have been carried out."""
        self.open_steps += 1
        for name, change in begun["changes"].items():
            self.least[name] += min(0, change)
            self.most[name] += max(0, change)
            if change < 0 and name != ACQUIRES:
                # Others may have used what came back.
                self.events.append(Event(begun["at"], name, change * MILLI, admitted=False))


def read_books(paths: Iterable[Path]) -> Account:
    """All books together."""
    account = Account()
    for path in paths:
        begun: dict[int, Mapping[str, Any]] = {}
        for line in _lines(path):
            if "step" in line:
                begun[line["step"]] = line
            elif "end" in line:
                account.settle(begun.pop(line["end"]), line)
            else:
                account.notes[line["note"]] += 1
        for step in begun.values():
            account.doubt(step)
    return account


def read_notes(path: Path) -> Counter[str]:
    """What a book that is still being written counts so far."""
    return Counter(line["note"] for line in _lines(path) if "note" in line)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Whole lines: whoever was killed may have left half of one."""
    for text in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if text.endswith("\n"):
            yield json.loads(text)
