"""This module is the port through which a limiter tells what it does, to whoever wants to know."""

from __future__ import annotations

from typing import Any, Protocol

from ..core.events import AcquireEvent, AcquireOutcome, LostWrite


class Listener(Protocol):
    """A listener is told of each acquire as it begins and ends, and of lost writes.

    It is called in the task or thread of the acquire, which waits meanwhile, so it must be quick,
    and must not block. What it raises is logged, and changes nothing.
    """

    def acquire_began(self, event: AcquireEvent) -> Any:
        """Note that an acquire begins. What is returned is handed to `acquire_ended`."""

    def acquire_ended(self, begun: Any, outcome: AcquireOutcome) -> None:
        """Note how an acquire ended."""

    def write_lost(self, lost: LostWrite) -> None:
        """Note that a refund or a correction was given up."""
