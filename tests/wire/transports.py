"""Every way to a server, so that one test body runs over all of them."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from zae_limiter.backends.dynamodb.wire.client import Client
from zae_limiter.backends.dynamodb.wire.connect import open_client, proxied_edge
from zae_limiter.backends.dynamodb.wire.credentials import Access
from zae_limiter.backends.dynamodb.wire.edge import Limits
from zae_limiter.backends.dynamodb.wire.server_clock import ServerClock
from zae_limiter.backends.dynamodb.wire.transport import SignedTransport
from zae_limiter.ports.io import Io

# `proxied` is our own transport with the edges that otherwise only proxies see.
BOTH = pytest.mark.parametrize("transport", ["wire", "botocore"])
OURS = pytest.mark.parametrize("transport", ["wire", "proxied"])
EVERY = pytest.mark.parametrize("transport", ["wire", "proxied", "botocore"])


def client_over(
    transport: str | None,
    io: Io,
    *,
    blocking: bool,
    region: str,
    endpoint_url: str,
    limits: Limits | None = None,
) -> Client:
    """A client that goes this way."""
    place: dict[str, Any] = {"region": region, "endpoint_url": endpoint_url}
    if transport != "proxied":
        return open_client(io, blocking=blocking, transport=transport, limits=limits, **place)
    clock = ServerClock()
    make = partial(proxied_edge, blocking=blocking, limits=limits)
    return Client(io, SignedTransport(io, Access(**place), make, clock), clock)


def unhurried(client: Client) -> Client:
    """The same client without a deadline: it tries as often as it would if no time passed."""
    client._backoff = replace(client._backoff, deadline_s=math.inf)
    return client
