"""A circuit breaker: after several failures in a row, calls fail at once instead of waiting.

closed     calls pass; failures in a row are counted, and a success resets the count
open       calls are refused; after a pause, the next caller probes
half-open  one caller probes; success closes the breaker, failure opens it again
"""

from __future__ import annotations

import logging
import time
from enum import Enum, auto

from ..core.log_fields import log_fields
from .fork_safety import new_lock

logger = logging.getLogger("zae_limiter")

# The pause between two probes: a store that is back is noticed within a second.
_PAUSE_S = 0.25
PROBE_S = 0.5
"""The seconds that a probe waits for an answer."""

FAIR_S = 0.1
"""The seconds that a call must have waited for its timeout to be the store's failure."""


class Turn(Enum):
    """The answer to a caller that wants to call the store."""

    PASS = auto()
    PROBE = auto()
    REFUSED = auto()


class Breaker:
    """A breaker that opens after so many failures in a row; never, if that is 0. Any number of
    threads and tasks may share it. `what`: the store's name in the log."""

    def __init__(self, failures: int, what: str = "The store") -> None:
        self._most = failures
        self._what = what
        self._lock = new_lock()
        self._failures = 0
        self._is_probing = False
        self._probe_at_s = 0.0
        self.is_open = False
        self.cause: BaseException | None = None

    @property
    def state(self) -> str:
        """The state by name."""
        if not self.is_open:
            return "closed"
        return "half-open" if self._is_probing else "open"

    def enter(self) -> Turn:
        """Ask for permission to call. Whoever is told to probe must report the outcome."""
        if not self.is_open:
            return Turn.PASS
        with self._lock:
            if not self.is_open:
                return Turn.PASS
            if self._is_probing or time.monotonic() < self._probe_at_s:
                return Turn.REFUSED
            self._is_probing = True
            return Turn.PROBE

    def succeeded(self) -> None:
        """Report a sign of life. The breaker closes."""
        if not self._failures:
            return
        with self._lock:
            was_open, self.is_open = self.is_open, False
            self._failures, self._is_probing, self.cause = 0, False, None
        if was_open:
            about = log_fields("breaker_closed", store=self._what)
            logger.warning("%s answers again: the breaker is closed", self._what, extra=about)

    def failed(self, error: BaseException) -> None:
        """Report that the store did not answer."""
        with self._lock:
            self._failures += 1
            opens = not self.is_open and 0 < self._most <= self._failures
            if opens or self._is_probing:
                self.is_open, self.cause = True, error
                self._is_probing, self._probe_at_s = False, time.monotonic() + _PAUSE_S
        if opens:
            text = "%s did not answer %d times in a row: the breaker is open: %s"
            about = log_fields(
                "breaker_opened", store=self._what, failures=self._failures, error=error
            )
            logger.warning(text, self._what, self._failures, error, extra=about)

    def give_up_probe(self) -> None:
        """Report that a probe was interrupted: the next caller probes."""
        with self._lock:
            self._is_probing = False
