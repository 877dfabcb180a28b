"""TCP connections that are kept open between requests."""

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

# Gateways forget idle connections after some minutes, without a word to either end. Probes
# keep their memory fresh; after more time than that, nobody can be sure that they were sent.
_PROBE_AFTER_IDLE_S = 60
_KEPT_IDLE_S = 240.0

BEFORE_SENDING: tuple[ErrorRow, ...] = (
    (ssl.SSLCertVerificationError, hopeless),
    (ProxyRefused, proxy_refused),
    (OSError, unsent),
    (UnicodeError, hopeless),
    (Malformed, hopeless),
)
"""While nothing of a request is sent, nothing can have happened."""

AFTER_SENDING: tuple[ErrorRow, ...] = ((OSError, lost), (Malformed, lost))
"""A connection that breaks may break after the service has acted: also one that was kept
from before, and also without a byte of an answer."""


class Tunable(Protocol):
    """A socket, or what an event loop gives in its place."""

    def setsockopt(self, level: int, optname: int, value: int, /) -> None:
        """As a socket does."""


def tune(connection: Tunable) -> None:
    """Send at once, and probe while idle."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_AFTER_IDLE_S)


def time_left_s(deadline_s: float) -> float:
    """Seconds until a time of the monotonic clock. Raises `TimeoutError` if there are none."""
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s


def is_fresh(idle_since_s: float) -> bool:
    """Whether a connection that was last used then may be used again. By the wall clock,
    which also counts the time that a machine was asleep."""
    return 0 <= time.time() - idle_since_s < _KEPT_IDLE_S


def listener(file_number: int) -> Callable[[], bool]:
    """Tells whether there is something to read. An idle connection has something to read only
    when the other end has closed it, or says what nobody asked."""
    if not hasattr(select, "poll"):
        return lambda: bool(select.select([file_number], [], [], 0)[0])
    poller = select.poll()
    poller.register(file_number, select.POLLIN)
    return lambda: bool(poller.poll(0))
