"""The listeners of a repository. What they raise is logged, and changes no acquire."""

from __future__ import annotations

import logging
from typing import Any

from ..core.events import AcquireEvent, AcquireOutcome, LostWrite
from ..ports.listener import Listener

logger = logging.getLogger("zae_limiter")
_FAILED = "A listener failed: %r"
_Begun = list[tuple[Listener, Any]]


class Listeners:
    """Any number of listeners, told one after the other. `all` is replaced, never changed, so that
    threads may add one while others are told."""

    def __init__(self) -> None:
        self.all: tuple[Listener, ...] = ()

    def add(self, listener: Listener) -> None:
        """Tell one more listener from now on."""
        self.all = (*self.all, listener)

    def begin(self, event: AcquireEvent) -> _Begun:
        """Tell that an acquire begins, and return what to hand to `end`."""
        begun: _Begun = []
        for listener in self.all:
            try:
                begun.append((listener, listener.acquire_began(event)))
            except Exception:
                logger.exception(_FAILED, listener)
        return begun

    def end(self, begun: _Begun, outcome: AcquireOutcome) -> None:
        """Tell those that were told of the beginning how the acquire ended."""
        for listener, noted in begun:
            try:
                listener.acquire_ended(noted, outcome)
            except Exception:
                logger.exception(_FAILED, listener)

    def lose(self, lost: LostWrite) -> None:
        """Tell that a write was given up."""
        for listener in self.all:
            try:
                listener.write_lost(lost)
            except Exception:
                logger.exception(_FAILED, listener)
