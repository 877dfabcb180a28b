"""An edge carries requests to the service and answers back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .protocol import Answer
from .request import SignedRequest


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits bound the time an edge waits for a connection, the time it then waits for each next
    byte, and the size of its connection pool."""

    connect_timeout_s: float = 2.0
    read_timeout_s: float = 4.0
    connections: int = 100


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
