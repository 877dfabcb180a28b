"""Clients that read, hang up, reset, time out, pipeline, or ask for streams that break."""

from __future__ import annotations

import random
import re
import socket
import struct
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

from tests.integrations.gateways import Gateway

_STATUS = re.compile(rb"^HTTP/1\.1 ([0-9]{3}) ", re.M)
_RESET = struct.pack("ii", 1, 0)


def crowd(gateway: Gateway, clients: int, calls_each: int) -> Counter[str]:
    """Let clients loose on a gateway, and return the statuses that those who stayed saw."""
    seen: Counter[str] = Counter()
    with ThreadPoolExecutor(clients) as pool:
        for found in pool.map(lambda seed: _client(gateway, seed, calls_each), range(clients)):
            seen += found
    return seen


def _client(gateway: Gateway, seed: int, calls: int) -> Counter[str]:
    chooser = random.Random(seed)
    seen: Counter[str] = Counter()
    for _ in range(calls):
        behaviour = chooser.choice(_BEHAVIOURS)
        with (
            suppress(OSError),
            closing(socket.create_connection(("127.0.0.1", gateway.port), timeout=30)) as client,
        ):
            seen += behaviour(client, gateway)
    return seen


def _send(client: socket.socket, gateway: Gateway, query: str, *, last: bool = True) -> None:
    path = f"/stream?key={gateway.key}&{query}"
    connection = "close" if last else "keep-alive"
    head = f"host: a\r\nx-api-key: {gateway.key}\r\nconnection: {connection}\r\n"
    client.sendall(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())


def _statuses(client: socket.socket) -> Counter[str]:
    read = b""
    while more := client.recv(65_536):
        read += more
    return Counter(status.decode() for status in _STATUS.findall(read))


def _reads(client: socket.socket, gateway: Gateway) -> Counter[str]:
    _send(client, gateway, "chunks=4")
    return _statuses(client)


def _pipelines(client: socket.socket, gateway: Gateway) -> Counter[str]:
    _send(client, gateway, "chunks=2", last=False)
    _send(client, gateway, "chunks=3")
    return _statuses(client)


def _hangs_up(client: socket.socket, gateway: Gateway) -> Counter[str]:
    _send(client, gateway, "chunks=200&pause_s=0.01")
    client.recv(1000)
    return Counter()


def _resets(client: socket.socket, gateway: Gateway) -> Counter[str]:
    _send(client, gateway, "chunks=50&pause_s=0.01")
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    return Counter()


def _times_out(client: socket.socket, gateway: Gateway) -> Counter[str]:
    client.settimeout(0.05)
    _send(client, gateway, "chunks=100&pause_s=0.02")
    return _statuses(client)


def _gets_an_error(client: socket.socket, gateway: Gateway) -> Counter[str]:
    _send(client, gateway, "chunks=5&fails_after=0")
    return _statuses(client)


def _sees_it_break(client: socket.socket, gateway: Gateway) -> Counter[str]:
    _send(client, gateway, "chunks=5&fails_after=2")
    return _statuses(client)


_BEHAVIOURS: list[Callable[[socket.socket, Gateway], Counter[str]]] = [
    _reads,
    _reads,
    _pipelines,
    _hangs_up,
    _resets,
    _times_out,
    _gets_an_error,
    _sees_it_break,
]
