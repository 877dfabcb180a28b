"""An edge carries requests to the service and answers back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ...store_url import USUAL_FAILURES, usual_total_s
from .protocol import Answer
from .request import SignedRequest


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits bound the time an edge waits for a connection, the time it then waits for each next
    byte, the size of its connection pool, and the time that a call takes with all its retries.
    After so many failures in a row a breaker opens."""

    connect_timeout_s: float = 2.0
    read_timeout_s: float = 4.0
    connections: int = 100
    total_timeout_s: float | None = None
    breaker_failures: int = USUAL_FAILURES

    @property
    def total_s(self) -> float:
        """Return the total timeout that was given; else 5 s, or more after a long read timeout."""
        return self.total_timeout_s or usual_total_s(self.read_timeout_s)


class Edge(Protocol):
    """An edge is an HTTP client with one verb.

    It keeps connections alive and uses them again. It raises failures as `StorageUnavailable`:
    not ambiguous if no byte of the request was sent, ambiguous otherwise. It does not abandon a
    request that was sent: a cancellation is held back until the outcome is known.
    """

    async def send(self, request: SignedRequest) -> Answer:
        """Send a request once, and return the answer."""

    async def close(self) -> None:
        """Close the connections. The edge may be used again afterwards."""
