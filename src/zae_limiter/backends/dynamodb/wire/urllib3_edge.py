"""The edge of the blocking driver where there is a proxy: urllib3 knows how to go through.

It blocks, and never suspends.
"""

from __future__ import annotations

import os
import socket
import ssl
from typing import Any

import urllib3
from urllib3 import exceptions
from urllib3.connection import HTTPConnection

from ....core.exceptions import StorageUnavailable
from .edge import Limits
from .endpoint import Endpoint
from .errors import Row, hopeless, lost, raise_ours, unsent
from .protocol import Answer
from .request import Request

# Gateways forget idle connections after some minutes, without a word to either end.
_PROBE_AFTER_IDLE_S = 60


def _tls(message: str, error: BaseException) -> StorageUnavailable:
    distrusted = any(isinstance(each, ssl.SSLCertVerificationError) for each in error.args)
    return (hopeless if distrusted else lost)(message, error)


_ERRORS: tuple[Row, ...] = (
    (exceptions.SSLError, _tls),
    (exceptions.ConnectTimeoutError, unsent),
    (exceptions.EmptyPoolError, unsent),
    (exceptions.ClosedPoolError, unsent),
    (exceptions.ProxyError, unsent),
    (exceptions.HTTPError, lost),
    (OSError, lost),
)


class Urllib3Edge:
    """Sends through urllib3. Threads share one pool; a forked child makes its own."""

    def __init__(self, endpoint: Endpoint, limits: Limits | None = None) -> None:
        self._endpoint = endpoint
        self._limits = limits or Limits()
        # A proxy is asked for the whole URL, unless it only lends a tunnel to TLS.
        through_proxy = endpoint.proxy is not None and endpoint.tls is None
        self._target = (endpoint.origin if through_proxy else "") + endpoint.path
        self._pool = self._new_pool()
        self._pid = os.getpid()

    async def send(self, request: Request) -> Answer:
        try:
            response = self._current_pool().urlopen(
                "POST",
                self._target,
                request.body,
                request.headers(),
                retries=False,
                redirect=False,
                assert_same_host=False,
                pool_timeout=self._limits.connect_timeout_s,  # type: ignore[arg-type] # not only int
                decode_content=False,
            )
            return Answer(response.status, response.headers, response.data)
        except Exception as error:
            raise_ours(error, _ERRORS, self._endpoint.host)

    async def close(self) -> None:
        pool, self._pool = self._current_pool(), self._new_pool()
        pool.close()

    def _current_pool(self) -> urllib3.HTTPConnectionPool:
        """Connections that a child has inherited are its parent's. Threads of the child that
        race here may make one pool too many, which goes when its call is done."""
        if self._pid != os.getpid():
            self._pool = self._new_pool()
            self._pid = os.getpid()
        return self._pool

    def _new_pool(self) -> urllib3.HTTPConnectionPool:
        limits, tls, proxy = self._limits, self._endpoint.tls, self._endpoint.proxy
        options: dict[str, Any] = {
            "maxsize": limits.connections,
            "block": True,
            "timeout": urllib3.Timeout(
                connect=limits.connect_timeout_s, read=limits.read_timeout_s
            ),
            "socket_options": _socket_options(),
            **({"ssl_context": tls} if tls else {}),
        }
        manager = (
            urllib3.ProxyManager(proxy, **options) if proxy else urllib3.PoolManager(**options)
        )
        return manager.connection_from_url(self._endpoint.origin)


def _socket_options() -> list[tuple[int, int, int | bytes]]:
    options = [*HTTPConnection.default_socket_options, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    if hasattr(socket, "TCP_KEEPIDLE"):
        options.append((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_AFTER_IDLE_S))
    return options
