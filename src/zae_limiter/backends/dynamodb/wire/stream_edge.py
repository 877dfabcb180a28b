"""The edge of the asyncio driver sends requests over asyncio's transports.

A kept connection is checked before it is used: if the server has closed it, the edge takes
another connection, and the call does not fail. The check asks the kernel, because the event
loop may not have had time to notice. The tables in `sockets` translate failures.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, TypeVar, cast

from ....local.deadline import answer_ends_s, time_left_of
from ....runtime.asyncio_driver import hold, is_shielded
from .edge import Limits
from .endpoint import Endpoint
from .errors import raise_ours, unsent
from .http1 import Incoming, Malformed
from .per_loop import PerLoop
from .protocol import Answer
from .proxy import Proxy, connect_request, is_tunnel_open
from .request import SignedRequest
from .sockets import AFTER_SENDING, BEFORE_SENDING, is_fresh, listener, tune

_NEXT_ADDRESS_AFTER_S = 0.25
_BUFFER_BYTES = 64 * 1024
_T = TypeVar("_T")
_P = TypeVar("_P", bound=asyncio.BaseProtocol)


class StreamEdge:
    """This edge uses plain or TLS connections, with a connection pool for each event loop."""

    def __init__(self, endpoint: Endpoint, limits: Limits | None = None) -> None:
        self._endpoint = endpoint
        self._pools = PerLoop(partial(_Pool, endpoint, limits or Limits()))

    async def send(self, request: SignedRequest) -> Answer:
        try:
            data = request.to_bytes()
            pool = self._pools.ready()
            if pool is None:
                pool = await _shielded(self._pools.get())
            connection = pool.kept()
            if connection is None:
                connection = await _shielded(pool.borrow())
        except Exception as error:
            raise_ours(error, BEFORE_SENDING, str(self._endpoint))
        try:
            return await connection.exchange(data, answer_ends_s())
        except Exception as error:
            raise_ours(error, AFTER_SENDING, str(self._endpoint))
        finally:
            pool.give_back(connection)

    async def close(self) -> None:
        await self._pools.close()


async def _shielded(work: Coroutine[Any, Any, _T]) -> _T:
    """Await work that may be given up, unless its flow is shielded from cancellations."""
    return await (hold(asyncio.ensure_future(work)) if is_shielded() else work)


class _Pool:
    """A connection pool keeps idle connections, the last used on top, and counts free places."""

    def __init__(self, endpoint: Endpoint, limits: Limits) -> None:
        self._endpoint = endpoint
        self._limits = limits
        self._room = limits.connections
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._idle: deque[_Connection] = deque()
        self._is_closed = False
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))

    async def __aenter__(self) -> _Pool:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close idle connections now, and each busy connection after its request."""
        self._is_closed = True
        while self._idle:
            connection = self._idle.pop()
            connection.abort()
            await connection.ended

    def kept(self) -> _Connection | None:
        """Take a kept connection that is sound, if that takes no waiting."""
        connection = self._pop() if self._room else None
        if connection is not None:
            self._room -= 1
        return connection

    def _pop(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_sound():
                return connection
            connection.abort()
        return None

    async def borrow(self) -> _Connection:
        """Take a kept connection, or open a connection, as soon as there is room."""
        if self._room:
            self._room -= 1
        else:
            await self._wait_for_room()
        try:
            return self._pop() or await self._connected()
        except BaseException:
            self._leave()
            raise

    async def _connected(self) -> _Connection:
        """Open a connection. If the caller is cancelled meanwhile, the next one may use it; given
        up half open, its socket would leak."""
        opening = asyncio.ensure_future(self._connect())
        try:
            async with asyncio.timeout(time_left_of(self._limits.connect_timeout_s)):
                return await asyncio.shield(opening)
        except BaseException:
            opening.add_done_callback(self._adopt)
            raise

    def _adopt(self, opening: asyncio.Future[_Connection]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._keep(opening.result())

    async def _connect(self) -> _Connection:
        endpoint = self._endpoint
        make = partial(_Connection, self._buffer, self._limits.read_timeout_s)
        async with asyncio.timeout(self._limits.connect_timeout_s):
            if endpoint.tunnel is not None:
                return await _dial_through(endpoint.tunnel, endpoint, make())
            _, connection = await _dial(make, endpoint.proxy or endpoint)
            return connection

    async def _wait_for_room(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(time_left_of(self._limits.connect_timeout_s)):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._leave()
            if isinstance(error, TimeoutError):
                message = f"all {self._limits.connections} connections are in use"
                raise unsent(message, error) from error
            raise

    def _leave(self) -> None:
        """Make room, and pass it to the task that waits longest, if any."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._room += 1

    def give_back(self, connection: _Connection) -> None:
        """Keep a connection that is open for the next request; close the stalest one if too old."""
        self._leave()
        self._keep(connection)

    def _keep(self, connection: _Connection) -> None:
        if self._is_closed:
            connection.abort()
        elif connection.is_open:
            connection.idle_since_s = time.time()
            self._idle.append(connection)
        if len(self._idle) > 1 and not is_fresh(self._idle[0].idle_since_s):
            self._idle.popleft().abort()


class _Connection(asyncio.BufferedProtocol):
    """A connection carries one request at a time. `ended` is done when its transport is closed.

    All connections of a loop share `buffer`, which is empty again before the next connection
    receives. Without it, asyncio would allocate 256 KiB for each answer.
    """

    def __init__(self, buffer: memoryview, patience_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._buffer = buffer
        self._patience_s = patience_s
        self._incoming = Incoming()
        self._answer: asyncio.Future[Answer] | None = None
        self._arrived: Answer | Exception | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._alive_s = 0.0
        self._ends_s = math.inf
        self.is_open = False
        self.idle_since_s = 0.0
        self.ended = self._loop.create_future()

    def is_sound(self) -> bool:
        """Tell whether the connection may be used again."""
        return self.is_open and is_fresh(self.idle_since_s) and not self._has_news()

    async def exchange(self, request: bytes, ends_s: float = math.inf) -> Answer:
        """Send a request and await the answer, which must be whole by a monotonic time. Close the
        connection unless it is kept alive."""
        self._incoming = Incoming()
        self._answer = self._loop.create_future()
        self._arrived = None
        self._alive_s = now_s = self._loop.time()
        # Not every loop tells the same time as the monotonic clock.
        self._ends_s = now_s + ends_s - time.monotonic()
        first_look_s = min(now_s + self._patience_s, self._ends_s)
        if self._watch is not None and self._watch.when() > first_look_s:
            self._watch.cancel()
            self._watch = None
        if self._watch is None:
            self._watch = self._loop.call_at(first_look_s, self._look)
        self._transport.write(request)
        try:
            try:
                answer = await self._answer
            except asyncio.CancelledError as cancellation:
                answer = await self._outcome(self._answer, cancellation)
        except BaseException:
            self.abort()
            raise
        finally:
            self._answer = None
        if not self._incoming.keeps_open:
            self.abort()
        return answer

    async def _outcome(
        self, answer: asyncio.Future[Answer], cancellation: asyncio.CancelledError
    ) -> Answer:
        """Await the answer of a sent request, and deliver the cancellation afterwards."""
        if answer.cancelled():
            self._answer = answer = self._loop.create_future()
            # What came in the turn of the loop before this one was told to the cancelled future.
            self._tell()
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        try:
            return await hold(answer)
        finally:
            task.cancel(*cancellation.args)

    def _look(self) -> None:
        """Fail the request if no byte came within the read timeout, or the answer is not whole in
        time. A timer serves many requests: when it fires early for the present request, it is set
        for the rest of its time."""
        self._watch = None
        if self._answer is None:
            return
        next_look_s = min(self._alive_s + self._patience_s, self._ends_s)
        if next_look_s > self._loop.time():
            self._watch = self._loop.call_at(next_look_s, self._look)
        else:
            self._arrive(TimeoutError("no answer in time"))

    def _arrive(self, outcome: Answer | Exception) -> None:
        """Keep the outcome of a request, of which only the first counts, and tell who waits."""
        if self._answer is not None and self._arrived is None:
            self._arrived = outcome
            self._tell()

    def _tell(self) -> None:
        answer, arrived = self._answer, self._arrived
        if answer is None or arrived is None or answer.done():
            return
        if isinstance(arrived, Exception):
            answer.set_exception(arrived)
        else:
            answer.set_result(arrived)

    def abort(self) -> None:
        """Close the transport at once. Closing twice does nothing."""
        self.is_open = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Other event loops have transports that are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        connected = transport.get_extra_info("socket")
        tune(connected)
        self._has_news = listener(connected.fileno())
        self.is_open = True

    async def start_tls(self, endpoint: Endpoint) -> None:
        """Begin TLS with an endpoint at the other end of a tunnel. Raises `OSError`."""
        assert endpoint.tls is not None
        host, plain = endpoint.address[0], self._transport
        try:
            secured = await self._loop.start_tls(plain, self, endpoint.tls, server_hostname=host)
        except TypeError as error:
            # Python 3.11 stumbles over its own report of a handshake that failed inside TLS.
            raise error.__context__ or error from None
        if secured is None or not self.is_open:
            raise ConnectionResetError("the connection was closed during the TLS handshake")
        self._transport = secured

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._answer is None or self._arrived is not None:
            self.abort()
            return
        self._alive_s = self._loop.time()
        try:
            answer = self._incoming.feed(bytes(self._buffer[:nbytes]))
        except Malformed as error:
            self._arrive(error)
        else:
            if answer is not None:
                self._arrive(answer)

    def eof_received(self) -> None:
        self.is_open = False
        if self._answer is None or self._arrived is not None:
            return
        try:
            self._arrive(self._incoming.end())
        except Malformed as error:
            self._arrive(error)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if self._watch is not None:
            self._watch.cancel()
        known = error if isinstance(error, OSError) else None
        self._arrive(known or ConnectionResetError("the connection was closed"))
        self.ended.set_result(None)


async def _dial(make: Callable[[], _P], hop: Endpoint | Proxy) -> tuple[asyncio.Transport, _P]:
    """Connect to an endpoint or a proxy, with TLS if its URL asks for that."""
    loop = asyncio.get_running_loop()
    host, port = hop.address
    # Not every event loop can try the next address before the first has failed.
    options: dict[str, Any] = (
        {"happy_eyeballs_delay": _NEXT_ADDRESS_AFTER_S}
        if isinstance(loop, asyncio.BaseEventLoop)
        else {}
    )
    if hop.tls is not None:
        options |= {"ssl": hop.tls, "server_hostname": host}
    return await loop.create_connection(make, host, port, **options)


async def _dial_through(proxy: Proxy, endpoint: Endpoint, connection: _Connection) -> _Connection:
    """Connect to a proxy, open a tunnel, and begin TLS with the endpoint at its other end."""
    reader = asyncio.StreamReader()
    transport, _ = await _dial(partial(asyncio.StreamReaderProtocol, reader), proxy)
    try:
        transport.write(connect_request(proxy, endpoint.address))
        await _tunnel_opened(reader)
        connection.connection_made(transport)
        await connection.start_tls(endpoint)
    except BaseException:
        transport.abort()
        raise
    return connection


async def _tunnel_opened(reader: asyncio.StreamReader) -> None:
    received = b""
    while not is_tunnel_open(received):
        data = await reader.read(_BUFFER_BYTES)
        if not data:
            raise ConnectionResetError("the proxy closed the connection instead of answering")
        received += data
