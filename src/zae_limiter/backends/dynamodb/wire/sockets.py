"""Both edges share these socket options, freshness checks and error tables."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import Protocol

from .errors import ErrorRow, hopeless, lost, unsent
from .http1 import Malformed
from .proxy import ProxyRefused, proxy_refused

# Gateways forget idle connections after some minutes and tell neither end. Keep-alive probes
# prevent that, unless this machine was asleep: then a connection is too old to be trusted.
_PROBE_AFTER_IDLE_S = 60
_KEPT_IDLE_S = 240.0

BEFORE_SENDING: tuple[ErrorRow, ...] = (
    (ssl.SSLCertVerificationError, hopeless),
    (ProxyRefused, proxy_refused),
    (OSError, unsent),
    (UnicodeError, hopeless),
    (Malformed, hopeless),
)
"""These rows apply before a request is sent: the request had no effect."""

AFTER_SENDING: tuple[ErrorRow, ...] = ((OSError, lost), (Malformed, lost))
"""These rows apply after a request is sent: the service may have acted, even if the connection
broke without a byte of an answer."""


class Tunable(Protocol):
    """A tunable is a socket, or the object that an event loop returns in place of a socket."""

    def setsockopt(self, level: int, optname: int, value: int, /) -> None:
        """Set an option, as a socket does."""


def tune(connection: Tunable) -> None:
    """Turn off Nagle's algorithm, and turn on keep-alive probes."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_AFTER_IDLE_S)


def time_left_s(deadline_s: float) -> float:
    """Return the seconds until a monotonic time, or raise `TimeoutError` if it is over."""
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s


def is_fresh(idle_since_s: float) -> bool:
    """Tell whether a connection that was last used then may be used again. The wall clock also
    counts the time for which a machine was asleep; the monotonic clock may not."""
    return 0 <= time.time() - idle_since_s < _KEPT_IDLE_S


def listener(file_number: int) -> Callable[[], bool]:
    """Return a function that tells whether a socket has bytes to read. An idle connection has
    some only if the server has closed it, or has sent an answer without a request."""
    if not hasattr(select, "poll"):
        return lambda: bool(select.select([file_number], [], [], 0)[0])
    poller = select.poll()
    poller.register(file_number, select.POLLIN)
    return lambda: bool(poller.poll(0))
