"""The edge of the blocking driver sends requests over sockets. It blocks, and never suspends.

A kept connection is checked before it is used: if the server has closed it, the edge takes
another connection, and the call does not fail. The tables in `sockets` translate failures.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
import weakref
from collections import deque

from ....local.deadline import answer_ends_s, time_left_of
from .edge import Limits
from .endpoint import Endpoint
from .errors import raise_ours, unsent
from .http1 import Incoming
from .protocol import Answer
from .proxy import Proxy, connect_request, is_tunnel_open
from .request import SignedRequest
from .sockets import AFTER_SENDING, BEFORE_SENDING, is_fresh, listener, time_left_s, tune
from .tls_in_tls import TlsInTls

_READ_BYTES = 64 * 1024
_Socket = socket.socket | TlsInTls


class SocketEdge:
    """This edge uses plain or TLS sockets. Threads share a connection pool; a forked child makes
    its own."""

    def __init__(self, endpoint: Endpoint, limits: Limits | None = None) -> None:
        self._endpoint = endpoint
        self._limits = limits or Limits()
        self._pool = _Pool(endpoint, self._limits)
        self._pid = os.getpid()

    async def send(self, request: SignedRequest) -> Answer:
        pool = self._current_pool()
        try:
            data = request.to_bytes()
            connection = pool.borrow()
        except Exception as error:
            raise_ours(error, BEFORE_SENDING, str(self._endpoint))
        try:
            return connection.exchange(data, self._limits.read_timeout_s, answer_ends_s())
        except Exception as error:
            raise_ours(error, AFTER_SENDING, str(self._endpoint))
        finally:
            pool.give_back(connection)

    async def close(self) -> None:
        pool, self._pool = self._current_pool(), _Pool(self._endpoint, self._limits)
        pool.close()

    def _current_pool(self) -> _Pool:
        """Return the pool of this process: a child must not use its parent's connections.
        Threads of a child that race here may make a pool too many, which lasts for a call."""
        if self._pid != os.getpid():
            self._pool = _Pool(self._endpoint, self._limits)
            self._pid = os.getpid()
        return self._pool


class _Pool:
    """A connection pool keeps idle connections, the last used on top, and counts free places."""

    def __init__(self, endpoint: Endpoint, limits: Limits) -> None:
        self._endpoint = endpoint
        self._limits = limits
        self._room = limits.connections
        self._changed = threading.Condition(threading.Lock())
        self._idle: deque[_Connection] = deque()
        self._is_closed = False
        # Without this, a pool that is garbage-collected before `close` would leak its sockets.
        weakref.finalize(self, _close_all, self._idle)

    def borrow(self) -> _Connection:
        """Take a kept connection that is sound, or else open a connection."""
        kept = self._enter()
        try:
            while kept is not None and not kept.is_sound():
                kept.close()
                kept = self._pop()
            return kept or _connect(self._endpoint, self._limits)
        except BaseException:
            self.give_back(None)
            raise

    def _enter(self) -> _Connection | None:
        """Wait for room, and take the connection that was used last, if there is any."""
        with self._changed:
            if not self._room:
                patience_s = time_left_of(self._limits.connect_timeout_s)
                self._changed.wait_for(lambda: self._room, patience_s)
            if not self._room:
                raise unsent(f"all {self._limits.connections} connections are in use")
            self._room -= 1
            return self._idle.pop() if self._idle else None

    def _pop(self) -> _Connection | None:
        with self._changed:
            return self._idle.pop() if self._idle else None

    def give_back(self, connection: _Connection | None) -> None:
        """Keep a connection that is open for the next request; close the stalest one if too old."""
        unused = None
        with self._changed:
            self._room += 1
            if connection is not None and connection.is_open:
                connection.idle_since_s = time.time()
                self._idle.append(connection)
            if self._idle and not is_fresh(self._idle[0].idle_since_s):
                unused = self._idle.popleft()
            self._changed.notify()
        if unused is not None:
            unused.close()
        if self._is_closed:
            _close_all(self._idle)

    def close(self) -> None:
        """Close idle connections now, and each busy connection after its request."""
        self._is_closed = True
        _close_all(self._idle)


class _Connection:
    """A connection carries one request at a time."""

    __slots__ = ("_has_news", "_socket", "idle_since_s")

    def __init__(self, connected: _Socket) -> None:
        self._socket = connected
        self._has_news = listener(connected.fileno())
        self.idle_since_s = 0.0

    @property
    def is_open(self) -> bool:
        """Tell whether this end has not closed the connection."""
        return self._socket.fileno() >= 0

    def is_sound(self) -> bool:
        """Tell whether the connection may be used again."""
        return is_fresh(self.idle_since_s) and not (self._has_news() or _pending(self._socket))

    def exchange(self, request: bytes, gap_s: float, ends_s: float) -> Answer:
        """Send a request and read the answer, which must be whole by a monotonic time, with no
        longer gaps. Close the connection unless it is kept alive."""
        incoming = Incoming()
        try:
            self._socket.settimeout(min(gap_s, time_left_s(ends_s)))
            self._socket.sendall(request)
            answer = None
            while answer is None:
                self._socket.settimeout(min(gap_s, time_left_s(ends_s)))
                data = self._socket.recv(_READ_BYTES)
                answer = incoming.feed(data) if data else incoming.end()
        except BaseException:
            self.close()
            raise
        if not incoming.keeps_open:
            self.close()
        return answer

    def close(self) -> None:
        """Close the socket. Closing twice does nothing."""
        self._socket.close()


def _close_all(connections: deque[_Connection]) -> None:
    while connections:
        connections.pop().close()


def _pending(connected: _Socket) -> int:
    """Count unread bytes that have left the socket, so that the kernel does not report them."""
    return connected.pending() if isinstance(connected, TlsInTls) else 0


def _connect(endpoint: Endpoint, limits: Limits) -> _Connection:
    """Open a connection. TCP to each address may take the connect timeout; TLS and a tunnel
    together may take it once more."""
    first = endpoint.proxy or endpoint
    connected = socket.create_connection(first.address, time_left_of(limits.connect_timeout_s))
    try:
        deadline_s = time.monotonic() + time_left_of(limits.connect_timeout_s)
        tune(connected)
        connected = _secured(connected, first, deadline_s)
        reached = _through_tunnel(connected, endpoint, deadline_s)
    except BaseException:
        connected.close()
        raise
    return _Connection(reached)


def _secured(connected: socket.socket, hop: Endpoint | Proxy, deadline_s: float) -> socket.socket:
    """Begin TLS with an endpoint or a proxy, if its URL asks for that."""
    if hop.tls is None:
        return connected
    connected.settimeout(time_left_s(deadline_s))
    return hop.tls.wrap_socket(
        connected, server_hostname=hop.address[0], suppress_ragged_eofs=False
    )


def _through_tunnel(connected: socket.socket, endpoint: Endpoint, deadline_s: float) -> _Socket:
    """Open a tunnel and begin TLS in it, if the endpoint is behind a proxy."""
    if endpoint.tunnel is None or endpoint.tls is None:
        return connected
    _open_tunnel(connected, connect_request(endpoint.tunnel, endpoint.address), deadline_s)
    if not isinstance(connected, ssl.SSLSocket):
        return _secured(connected, endpoint, deadline_s)
    connected.settimeout(time_left_s(deadline_s))
    return TlsInTls(connected, endpoint.tls, endpoint.address[0])


def _open_tunnel(connected: socket.socket, request: bytes, deadline_s: float) -> None:
    connected.settimeout(time_left_s(deadline_s))
    connected.sendall(request)
    received = b""
    while not is_tunnel_open(received):
        connected.settimeout(time_left_s(deadline_s))
        data = connected.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError("the proxy closed the connection instead of answering")
        received += data
