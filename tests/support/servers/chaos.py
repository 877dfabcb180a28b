"""A proxy before a server that breaks requests by plan.

It reads whole HTTP requests, so that one act befalls exactly one request, also on a
connection that is kept alive. An act says what becomes of the request:

    Pass            the server's answer comes back
    Last            it comes back, and the connection closes
    Delay           it comes back later
    Hold            it comes back when the test says so
    Drip            it comes back a byte at a time
    DropAnswer      the server carries out the request; the connection closes without answer
    Truncate        the server carries out the request; half of the answer's body comes back
    Corrupt         the server carries out the request; one byte of the answer's body is wrong
    Reset           the connection is reset; the server never hears of the request
    DeliverLate     the connection ends; the server hears of the request when the test says so
    Answer          the proxy answers by itself; the server never hears of the request
"""

from __future__ import annotations

import http.client
import itertools
import json
import random
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from io import BufferedIOBase
from types import TracebackType
from urllib.parse import urlsplit

_READ_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Pass:
    """Let the request through."""


@dataclass(frozen=True, slots=True)
class Last:
    """Let the request through, and close the connection after the answer."""


@dataclass(frozen=True, slots=True)
class Delay:
    """Let the request through, and hold the answer back."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Let the request through, and hold the answer back until it is released."""

    released: threading.Event


@dataclass(frozen=True, slots=True)
class Drip:
    """Let the request through, and send a byte of the answer after each pause."""

    seconds: float


@dataclass(frozen=True, slots=True)
class DropAnswer:
    """Let the request through, and close instead of answering."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Let the request through, and close in the middle of the answer."""


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Let the request through, and change a byte of the answer."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Reset the connection. The server hears nothing."""


@dataclass(frozen=True, slots=True)
class DeliverLate:
    """End the connection, and let the server hear of the request once it is released."""

    released: threading.Event = field(default_factory=threading.Event)
    delivered: threading.Event = field(default_factory=threading.Event)

    def deliver(self) -> None:
        """Let the server carry out the request now."""
        self.released.set()
        assert self.delivered.wait(_READ_TIMEOUT_S), "the request was never held back"


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer in the server's place."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


Act = (
    Pass
    | Last
    | Delay
    | Hold
    | Drip
    | DropAnswer
    | Truncate
    | Corrupt
    | Reset
    | DeliverLate
    | Answer
)


def service_error(status: int, code: str, message: str = "by plan") -> Answer:
    """What DynamoDB answers when it refuses."""
    kind = f"com.amazonaws.dynamodb.v20120810#{code}"
    return Answer(status, json.dumps({"__type": kind, "message": message}).encode())


INTERNAL_ERROR = service_error(500, "InternalServerError")
THROTTLED = service_error(400, "ProvisionedThroughputExceededException")


def seeded(seed: int, acts: Sequence[Act], share: float) -> Iterator[Act]:
    """For ever: one of the acts with this probability, else pass."""
    source = random.Random(seed)
    while True:
        yield source.choice(acts) if source.random() < share else Pass()


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request, as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def operation(self) -> str:
        """`UpdateItem`, for example."""
        return self.headers.get("x-amz-target", "").rpartition(".")[2]


class ChaosProxy:
    """Listens on a loopback port of its own. Use it as a context manager."""

    def __init__(
        self, upstream_url: str, plan: Iterable[Act] = (), tls: ssl.SSLContext | None = None
    ) -> None:
        upstream = urlsplit(upstream_url)
        self._upstream = (upstream.hostname or "", upstream.port or 80)
        self._plan = itertools.chain(plan, itertools.repeat(Pass()))
        self._choose: Callable[[Request], Act] | None = None
        self._tls = tls
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._clients: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        self.heard = threading.Event()
        self.connections = 0
        self.requests: list[tuple[Request, Act]] = []

    def use(self, plan: Iterable[Act]) -> None:
        """Follow another plan from the next request on."""
        with self._lock:
            self._choose = None
            self._plan = itertools.chain(plan, itertools.repeat(Pass()))

    def use_for(self, choose: Callable[[Request], Act]) -> None:
        """From the next request on, do to each what is chosen for it."""
        with self._lock:
            self._choose = choose

    def __enter__(self) -> ChaosProxy:
        self._run(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        # Closing alone does not wake a thread that waits in accept or recv.
        for each in (self._listener, *self._clients):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join()

    def _run(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.settimeout(_READ_TIMEOUT_S)
                self.connections += 1
                self._clients.append(client)
                self._run(partial(self._serve, client))

    def _serve(self, client: socket.socket) -> None:
        server = http.client.HTTPConnection(*self._upstream, timeout=_READ_TIMEOUT_S)
        with suppress(OSError, http.client.HTTPException), ExitStack() as stack:
            client = stack.enter_context(self._secured(stack.enter_context(client)))
            stream = stack.enter_context(client.makefile("rb"))
            while request := read_request(stream):
                if not self._carry_out(self._next_act(request), request, client, server):
                    break
        server.close()

    def _secured(self, client: socket.socket) -> socket.socket:
        return self._tls.wrap_socket(client, server_side=True) if self._tls else client

    def _next_act(self, request: Request) -> Act:
        with self._lock:
            act = self._choose(request) if self._choose else next(self._plan)
            self.requests.append((request, act))
        self.heard.set()
        return act

    def _carry_out(
        self, act: Act, request: Request, client: socket.socket, server: http.client.HTTPConnection
    ) -> bool:
        """Do it, and say whether the connection stays open."""
        match act:
            case Reset():
                reset(client)
                return False
            case DeliverLate(released, delivered):
                # Closing does not end the connection while its stream is open.
                client.shutdown(socket.SHUT_RDWR)
                if released.wait(_READ_TIMEOUT_S):
                    _forward(request, server)
                    delivered.set()
                return False
            case Answer():
                client.sendall(_bytes(act))
            case Pass():
                client.sendall(_bytes(_forward(request, server)))
            case Last():
                client.sendall(_bytes(_forward(request, server), closing=True))
                return False
            case Delay(seconds):
                answer = _forward(request, server)
                self._ended.wait(seconds)
                client.sendall(_bytes(answer))
            case Hold(released):
                answer = _forward(request, server)
                released.wait(_READ_TIMEOUT_S)
                client.sendall(_bytes(answer))
            case Drip(seconds):
                for byte in _bytes(_forward(request, server)):
                    if self._ended.wait(seconds):
                        return False
                    client.sendall(bytes([byte]))
            case Corrupt():
                answer = _forward(request, server)
                wrong = bytes([answer.body[0] ^ 1]) + answer.body[1:]
                client.sendall(_bytes(replace(answer, body=wrong)))
            case Truncate():
                answer = _forward(request, server)
                client.sendall(_bytes(answer)[: -(len(answer.body) + 1) // 2])
                return False
            case DropAnswer():
                _forward(request, server)
                return False
        return True


def read_request(stream: BufferedIOBase) -> Request | None:
    """The next request of a connection; None when it has ended, or speaks something else."""
    start = stream.readline().decode("latin-1").split()
    if len(start) != 3 or not start[2].startswith("HTTP/"):
        return None
    headers: dict[str, str] = {}
    while line := stream.readline().decode("latin-1").strip():
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    body = stream.read(int(headers.get("content-length", 0)))
    return Request(start[0], start[1], headers, body)


def _forward(request: Request, server: http.client.HTTPConnection) -> Answer:
    server.request(request.method, request.path, request.body, dict(request.headers))
    response = server.getresponse()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, response.read(), headers)


def _bytes(answer: Answer, *, closing: bool = False) -> bytes:
    framing = {"content-length", "transfer-encoding", "connection"}
    headers = {name: value for name, value in answer.headers.items() if name not in framing}
    headers["content-length"] = str(len(answer.body))
    if closing:
        headers["connection"] = "close"
    lines = [f"{name}: {value}" for name, value in headers.items()]
    start = f"HTTP/1.1 {answer.status} By Plan"
    return "\r\n".join([start, *lines, "", ""]).encode() + answer.body


def reset(connection: socket.socket) -> None:
    """Close with RST instead of FIN."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@contextmanager
def dead_end() -> Iterator[str]:
    """The address of a listener that lets nobody in: connecting to it times out."""
    with socket.socket() as listener, socket.socket() as filler:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        filler.connect(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def closed_door() -> Iterator[str]:
    """An address where nobody listens, and which nobody else gets: connections are refused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"
