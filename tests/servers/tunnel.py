"""A proxy that lends tunnels: it answers `CONNECT`, then passes bytes both ways."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from .chaos import read_request


@dataclass(frozen=True, slots=True)
class Tunnel:
    """Where it listens, and where it was asked to go."""

    url: str
    asked: list[str] = field(default_factory=list)


@contextmanager
def tunnel(*, lets_through: bool = True) -> Iterator[Tunnel]:
    """Run one for the length of a block."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                request = read_request(self.rfile)
                if request is not None:
                    made.asked.append(f"{request.method} {request.path}")
                    self._connect(request.path)

        def _connect(self, target: str) -> None:
            if not lets_through:
                self.wfile.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
                return
            host, _, port = target.rpartition(":")
            with socket.create_connection((host, int(port))) as far:
                self.wfile.write(b"HTTP/1.1 200 Connected\r\n\r\n")
                back = threading.Thread(target=_pass_on, args=(far, self.connection))
                back.start()
                _pass_on(self.connection, far)
                back.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        made = Tunnel(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
