"""This module chooses the parts of a client.

Edges of our own carry the requests: one POST at a time over a keep-alive connection needs little
of HTTP, and a general HTTP client spends several times the CPU on the rest.
"""

from __future__ import annotations

import os
from functools import partial

from ....core.exceptions import ValidationError
from ....local.breaker import Breaker
from ....ports.io import Io
from ...store_url import TRANSPORTS
from .client import DynamoClient
from .credentials import Access
from .edge import Edge, Limits
from .endpoint import Endpoint
from .server_clock import ServerClock
from .transport import SignedTransport, Transport


def open_client(
    io: Io,
    *,
    blocking: bool,
    region: str | None = None,
    endpoint_url: str | None = None,
    transport: str | None = None,
    limits: Limits | None = None,
) -> DynamoClient:
    """Open a client for the blocking driver or for asyncio. Nothing is sent yet.

    `transport` is "wire", our own, or "botocore"; the default is `ZAEL_TRANSPORT`, else ours.
    """
    name = transport or os.environ.get("ZAEL_TRANSPORT") or "wire"
    if name not in TRANSPORTS:
        raise ValidationError("transport", name, f"must be one of {', '.join(TRANSPORTS)}")
    clock = ServerClock()
    if name == "botocore":
        made = _botocore(clock, blocking, region, endpoint_url, limits)
    else:
        made = signed(io, clock, Access(region, endpoint_url), blocking=blocking, limits=limits)
    limits = limits or Limits()
    breaker = Breaker(limits.breaker_failures, "DynamoDB")
    return DynamoClient(io, made, clock, total_s=limits.total_s, breaker=breaker)


def signed(
    io: Io, clock: ServerClock, access: Access, *, blocking: bool, limits: Limits | None = None
) -> SignedTransport:
    """Build our own transport."""
    make = partial(open_edge, blocking=blocking, limits=limits)
    return SignedTransport(io, access, make, clock)


def open_edge(endpoint: Endpoint, *, blocking: bool, limits: Limits | None = None) -> Edge:
    """Build an edge for the blocking driver or for asyncio. Nothing is connected yet."""
    if blocking:
        from .socket_edge import SocketEdge

        return SocketEdge(endpoint, limits)
    from .stream_edge import StreamEdge

    return StreamEdge(endpoint, limits)


def _botocore(
    clock: ServerClock,
    blocking: bool,
    region: str | None,
    endpoint_url: str | None,
    limits: Limits | None,
) -> Transport:
    if blocking:
        from .botocore_transport import BotocoreTransport

        return BotocoreTransport(clock, region, endpoint_url, limits)
    from .aiobotocore_transport import AiobotocoreTransport

    return AiobotocoreTransport(clock, region, endpoint_url, limits)
