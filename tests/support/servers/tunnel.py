"""This proxy answers `CONNECT`, then passes bytes both ways."""

from __future__ import annotations

import itertools
import select
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from tests.support.servers.chaos import Request, read_request

_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Says:
    """The proxy answers `CONNECT` with these pieces, and a pause before each, in place of a tunnel.

    Afterwards it closes the connection, or stays silent.
    """

    pieces: Sequence[bytes] = ()
    before_each_s: float = 0.0
    closes: bool = True


SILENCE = Says(closes=False)


def refusal(status: int) -> Says:
    """Build an answer with this status and a body."""
    return Says([b"HTTP/1.1 %d No\r\ncontent-length: 2\r\n\r\nno" % status])


class TunnelProxy:
    """The proxy listens on a loopback port, and remembers every request for a tunnel."""

    def __init__(self, plan: Iterable[Says | None], tls: ssl.SSLContext | None) -> None:
        self._plan = itertools.chain(plan, itertools.repeat(None))
        self._tls = tls
        self._ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.requests: list[Request] = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.heard = threading.Event()

    @property
    def url(self) -> str:
        """Return the proxy's URL, without credentials."""
        return f"{'https' if self._tls else 'http'}://{self.address}"

    @property
    def asked(self) -> list[str]:
        """Return the first line of each request, up to the version."""
        return [f"{request.method} {request.path}" for request in self.requests]

    def run(self, work: partial[None]) -> None:
        """Run work in a thread that ends with the proxy."""
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def accept(self) -> None:
        """Serve connections until the proxy is closed."""
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.settimeout(_TIMEOUT_S)
                self._sockets.append(client)
                self.run(partial(self._serve, client))

    def cut(self) -> None:
        """Close every tunnel, and wait until that is done."""
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join(_TIMEOUT_S)

    def close(self) -> None:
        """Close every tunnel and the listener."""
        self._ended.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        self.cut()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError, ssl.SSLError):
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
                self._sockets.append(client)
            with client, client.makefile("rb", buffering=0) as stream:
                request = read_request(stream)  # type: ignore[arg-type] # unbuffered
                if request is not None:
                    self._answer(request, client)

    def _answer(self, request: Request, client: socket.socket) -> None:
        self.requests.append(request)
        says = next(self._plan)
        self.heard.set()
        if says is None:
            self._connect(request.path, client)
            return
        for piece in says.pieces:
            if self._ended.wait(says.before_each_s):
                return
            client.sendall(piece)
        if not says.closes:
            self._ended.wait(_TIMEOUT_S)

    def _connect(self, target: str, client: socket.socket) -> None:
        host, _, port = target.rpartition(":")
        with socket.create_connection((host, int(port))) as far:
            client.sendall(b"HTTP/1.1 200 Connected\r\nvia: test\r\n\r\n")
            _relay(client, far)


def _relay(near: socket.socket, far: socket.socket) -> None:
    """Pass bytes until either end closes, in one thread: OpenSSL allows no more on a connection."""
    while True:
        is_pending = isinstance(near, ssl.SSLSocket) and near.pending()
        ready = [near] if is_pending else select.select([near, far], [], [], _TIMEOUT_S)[0]
        for source in ready:
            data = source.recv(65536)
            if not data:
                return
            (far if source is near else near).sendall(data)


@contextmanager
def tunnel(*plan: Says | None, tls: ssl.SSLContext | None = None) -> Iterator[TunnelProxy]:
    """Run a proxy for the length of a block.

    Each request is answered by the next entry of the plan; None, and all after its end, is a
    tunnel to the address that was asked for.
    """
    proxy = TunnelProxy(plan, tls)
    proxy.run(partial(proxy.accept))
    try:
        yield proxy
    finally:
        proxy.close()
