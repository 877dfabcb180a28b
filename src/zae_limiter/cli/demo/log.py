"""This module writes a worker's log: one JSON object a line, on its standard output.

A correction is logged before it begins and again when it has ended, so that a correction that was
cut off is known to have been possible.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from itertools import count
from typing import Any, TextIO

from ...core.ledger import Entry
from ...core.rate_limit_exceeded import RateLimitExceeded
from ...runtime.system_clock import SystemClock

now_ms = SystemClock().now_ms


class Log:
    """A log is shared by all callers of a worker."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._numbers = count(1)

    def ready(self) -> None:
        """Log that the worker can begin."""
        self._write({"kind": "ready"})

    def admitted(self, began_ms: int, entries: Sequence[Entry]) -> None:
        """Log that a call was let through, and which buckets were charged."""
        moves = {entry.address.entity_id: entry.charged_milli for entry in entries}
        self._write(
            {"kind": "admitted", "began_ms": began_ms, "ended_ms": now_ms(), "moves": moves}
        )

    def refused(self, error: RateLimitExceeded) -> None:
        """Log that a call was refused, and which limits of which entities were short."""
        short = [[status.entity_id, status.limit_name] for status in error.violations]
        self._write({"kind": "refused", "short": short})

    def unavailable(self, error: Exception) -> None:
        """Log that the store did not answer."""
        self._write({"kind": "unavailable", "reason": str(error)})

    def refunding(self, entries: Sequence[Entry]) -> int:
        """Log that everything these buckets were charged is about to be given back."""
        return self._correcting(
            {
                entry.address.entity_id: {name: -n for name, n in entry.charged_milli.items()}
                for entry in entries
            }
        )

    def adjusting(self, entries: Sequence[Entry], deltas_milli: dict[str, int]) -> int:
        """Log that these buckets are about to be corrected."""
        return self._correcting({entry.address.entity_id: deltas_milli for entry in entries})

    def corrected(self, number: int) -> None:
        """Log that the correction of this number has ended."""
        self._write({"kind": "corrected", "number": number, "ended_ms": now_ms()})

    def _correcting(self, moves: dict[str, dict[str, int]]) -> int:
        number = next(self._numbers)
        self._write({"kind": "correcting", "number": number, "began_ms": now_ms(), "moves": moves})
        return number

    def _write(self, record: dict[str, Any]) -> None:
        line = json.dumps(record)
        with self._lock:
            self._stream.write(line + "\n")
            self._stream.flush()
