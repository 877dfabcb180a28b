"""What carries bytes to the service and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .protocol import Answer
from .request import SignedRequest


@dataclass(frozen=True, slots=True)
class Limits:
    """How long an edge waits for a connection, and then for each sign of life; and how many
    connections it holds."""

    connect_timeout_s: float = 2.0
    read_timeout_s: float = 4.0
    connections: int = 100


class Edge(Protocol):
    """An HTTP library, reduced to one verb.

    Connections are kept open and used again. Failures are raised as `StorageUnavailable`:
    not ambiguous when the request surely was not sent, ambiguous otherwise. A request that is
    under way is not abandoned: a cancellation is held back until its outcome is known.
    """

    async def send(self, request: SignedRequest) -> Answer:
        """POST, once."""

    async def close(self) -> None:
        """Let go of the connections. It may be used again afterwards."""
