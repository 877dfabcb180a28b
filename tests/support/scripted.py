"""A scripted server sends exactly the bytes that a test wants."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tests.support.servers.chaos import read_request

_TIMEOUT_S = 30.0


@dataclass(slots=True)
class Said:
    """An answer is sent in pieces, with a pause before each piece, or all in one packet."""

    pieces: Sequence[bytes]
    before_each_s: float = 0.0
    is_one_packet: bool = False


@dataclass(slots=True)
class Scripted:
    """A scripted server has a URL, and counts the requests of each of its connections."""

    url: str
    heard: list[int] = field(default_factory=list)
    _closed: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def wait_until_closed(self) -> None:
        """Wait until the server has closed another of its connections."""
        assert self._closed.acquire(timeout=_TIMEOUT_S)


@contextmanager
def scripted(
    *connections: Sequence[bytes | Said], tls: ssl.SSLContext | None = None
) -> Iterator[Scripted]:
    """Serve these connections, one after the other. Each connection answers its requests by its
    script, and then closes. With TLS, each piece is a record."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(_TIMEOUT_S)
        scheme = "https" if tls else "http"
        made = Scripted(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}")
        thread = threading.Thread(target=_serve_all, args=(listener, connections, made, tls))
        thread.start()
        try:
            yield made
        finally:
            # Closing alone does not wake a thread that waits in accept.
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve_all(
    listener: socket.socket,
    connections: Sequence[Sequence[bytes | Said]],
    made: Scripted,
    tls: ssl.SSLContext | None,
) -> None:
    for answers in connections:
        with suppress(OSError), _secured(listener.accept()[0], tls) as connection:
            connection.settimeout(_TIMEOUT_S)
            made.heard.append(0)
            _serve(connection, answers, made)
        made._closed.release()


def _secured(connection: socket.socket, tls: ssl.SSLContext | None) -> socket.socket:
    return tls.wrap_socket(connection, server_side=True) if tls else connection


def _serve(connection: socket.socket, answers: Sequence[bytes | Said], made: Scripted) -> None:
    with connection.makefile("rb") as stream:
        for answer in answers:
            if read_request(stream) is None:
                return
            made.heard[-1] += 1
            said = answer if isinstance(answer, Said) else Said([answer])
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, said.is_one_packet)
            for piece in said.pieces:
                time.sleep(said.before_each_s)
                connection.sendall(piece)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, False)
