"""A transport signs a request, sends it, and reads the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from ...._version import __version__
from ....local.fork_safety import new_lock
from ....local.steady_time import steady_s
from ....ports.io import Io
from .credentials import Access, Grant
from .edge import Edge
from .endpoint import Endpoint
from .errors import NOT_BELIEVED, ErrorAnswer, exception_of
from .protocol import read_answer, request_body, request_headers
from .request import SharedHead, SignedRequest
from .server_clock import ServerClock
from .signer import Stamp, make_stamp

# Decompression would cost more time than it saves, and the checksum is of the bytes as sent.
_UNSIGNED = {"accept-encoding": "identity", "user-agent": f"zae-limiter/{__version__}"}


class _Kept(NamedTuple):
    """Requests for an operation share these parts while second and grant stay the same."""

    second: int
    grant: Grant
    stamp: Stamp
    shared_head: SharedHead


def _keep(grant: Grant, operation: str, second: int) -> _Kept:
    region, endpoint, credentials = grant
    own = request_headers(operation)
    stamp = make_stamp(credentials, region, endpoint.host, endpoint.path, own, second)
    forwarder = endpoint.forwarder
    unsigned = {**_UNSIGNED, **forwarder.headers} if forwarder else _UNSIGNED
    headers = {**stamp.sent, **unsigned, "authorization": stamp.proof}
    return _Kept(second, grant, stamp, SharedHead(endpoint.request_target, headers))


class Transport(Protocol):
    """A transport carries a request to DynamoDB and returns the answer's content."""

    async def exchange(self, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request once. A cancellation is held back until the outcome of a sent request
        is known. Raises as `errors` says."""

    async def close(self) -> None:
        """Close the connections. The transport may be used again afterwards."""


class SignedTransport:
    """Our own transport signs with the credentials of `Access`, and sends through an edge."""

    def __init__(
        self,
        io: Io,
        access: Access,
        make_edge: Callable[[Endpoint], Edge],
        clock: ServerClock,
        now_s: Callable[[], float] = steady_s,
    ) -> None:
        self._io = io
        self._access = access
        self._make_edge = make_edge
        self._clock = clock
        self._now_s = now_s
        self._lock = new_lock()
        self._edge: Edge | None = None
        self._kept: dict[str, _Kept] = {}

    async def exchange(self, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        body = request_body(parameters)
        offset_s = self._clock.offset_s
        found = await self._post(operation, body)
        if not isinstance(found, ErrorAnswer):
            return found
        if self._told_the_time(found, offset_s):
            found = await self._post(operation, body)
        if isinstance(found, ErrorAnswer):
            raise exception_of(found)
        return found

    async def close(self) -> None:
        if self._edge is not None:
            await self._edge.close()

    def _told_the_time(self, answer: ErrorAnswer, offset_s: float) -> bool:
        """Tell whether the request was signed with a wrong time that this answer has corrected."""
        return answer.code in NOT_BELIEVED and self._clock.offset_s != offset_s

    async def _post(self, operation: str, body: bytes) -> dict[str, Any] | ErrorAnswer:
        grant = self._access.ready()
        if grant is None:
            grant = await self._io.offload(self._access.obtain)
        edge = self._edge or self._open(grant.endpoint)
        sent_s = self._now_s()
        answer = await edge.send(self._signed(grant, operation, body, sent_s))
        self._clock.observe(answer.headers.get("date"), sent_s, self._now_s())
        return read_answer(operation, answer)

    def _signed(self, grant: Grant, operation: str, body: bytes, now_s: float) -> SignedRequest:
        second = int(now_s + self._clock.offset_s)
        kept = self._kept.get(operation)
        if kept is None or kept.second != second or kept.grant is not grant:
            kept = self._kept[operation] = _keep(grant, operation, second)
        return SignedRequest(kept.shared_head, kept.stamp.signature(body), body)

    def _open(self, endpoint: Endpoint) -> Edge:
        with self._lock:
            if self._edge is None:
                self._edge = self._make_edge(endpoint)
            return self._edge
