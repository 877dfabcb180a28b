"""`TlsInTls` speaks TLS to an https endpoint behind an https proxy, over blocking sockets.

Python's `ssl` wraps a socket only once, so the inner TLS works on buffers in memory. asyncio
needs none of this.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from .sockets import time_left_s

_READ_BYTES = 64 * 1024
_T = TypeVar("_T")


class TlsInTls:
    """`TlsInTls` has the methods of a socket that an edge uses, and encrypts twice.

    A timeout is for a whole call, as it is for `ssl.SSLSocket`.
    """

    def __init__(self, outer: ssl.SSLSocket, context: ssl.SSLContext, host: str) -> None:
        self._outer = outer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._inner = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._timeout_s = outer.gettimeout() or 0.0
        self._perform(self._inner.do_handshake)

    def settimeout(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def fileno(self) -> int:
        return self._outer.fileno()

    def pending(self) -> int:
        """Count the bytes that were received and not read yet."""
        return self._outer.pending() + self._incoming.pending + self._inner.pending()

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._perform(partial(self._inner.write, rest)) :]

    def recv(self, size: int) -> bytes:
        return self._perform(partial(self._inner.read, size))

    def close(self) -> None:
        self._outer.close()

    def _perform(self, step: Callable[[], _T]) -> _T:
        """Repeat a step until it has received enough; send all that it has written."""
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                self._send(deadline_s)
                self._receive(deadline_s)
            else:
                self._send(deadline_s)
                return result

    def _send(self, deadline_s: float) -> None:
        if data := self._outgoing.read():
            self._outer.settimeout(time_left_s(deadline_s))
            self._outer.sendall(data)

    def _receive(self, deadline_s: float) -> None:
        self._outer.settimeout(time_left_s(deadline_s))
        if data := self._outer.recv(_READ_BYTES):
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
