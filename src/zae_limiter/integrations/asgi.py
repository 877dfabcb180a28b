"""ASGI middleware that holds leases for as long as a response is streamed.

A call is charged before the application sees it. The start of the response is held back until its
first byte, so that a refusal or a failure before that byte is still an answer with a status.
A handler finds its lease with `lease_of_scope(request.scope)`.

    before the first byte:  an error, or a status such as 500        the charge is given back
    afterwards:             the end, an error, or a client that left the charge stands, as adjusted
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from ..core.exceptions import LeaseExpiredError, RateLimiterUnavailable, ValidationError
from ..lease import Lease
from ..limiter import RateLimiter
from .call import call_of_asgi
from .http_fields import Expose, Fields
from .http_options import HttpOptions, is_server_error
from .problem import HttpAnswer
from .rule import Reservation, Rule, reservation_of

AsgiScope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[AsgiScope, Receive, Send], Awaitable[None]]
LimiterSource = RateLimiter | Callable[[AsgiScope], RateLimiter]
_EXCHANGE = "zae_limiter.exchange"
_DENIAL = "websocket.http.response"
_POLICY_VIOLATION = 1008


class RateLimitMiddleware:
    """Middleware that charges calls by rules, and answers refusals.

    `limiter`: a limiter, or a function that finds it in the ASGI scope, for one that is opened
    when the application starts.
    """

    def __init__(
        self,
        app: AsgiApp,
        limiter: LimiterSource,
        rules: Sequence[Rule] = (),
        *,
        expose: Expose = "own",
        legacy_fields: bool = False,
        refunds: Callable[[int], bool] = is_server_error,
    ) -> None:
        self.app = app
        self.limiter = limiter
        self.options = HttpOptions(rules, expose, legacy_fields, refunds)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        limiter = self.limiter if isinstance(self.limiter, RateLimiter) else self.limiter(scope)
        await Exchange(self.options, limiter, receive, send).run(self.app, scope)


def exchange_of(scope: AsgiScope) -> Exchange:
    """Return the exchange that a scope belongs to."""
    found = scope.get(_EXCHANGE)
    if not isinstance(found, Exchange):
        raise ValidationError("app", scope["path"], "has no RateLimitMiddleware: add it first")
    return found


def lease_of_scope(scope: AsgiScope) -> Lease | None:
    """Return the first lease of the call that a scope describes; None for a call that is exempt."""
    leases = exchange_of(scope).leases
    return leases[0] if leases else None


class Exchange:
    """An exchange is one request with its response, or one WebSocket, and the leases it holds."""

    def __init__(
        self,
        options: HttpOptions,
        limiter: RateLimiter,
        receive: Receive,
        send: Send,
    ) -> None:
        self.leases: list[Lease] = []
        self._open: list[Lease] = []
        self._options = options
        self._limiter = limiter
        self._receive = receive
        self._send = send
        self._start: Message | None = None
        self._has_begun = False
        self._has_left = False

    async def reserve(self, reservation: Reservation) -> Lease:
        """Charge, and hold the lease until the exchange ends."""
        lease = await self._limiter.reserve(**reservation)
        self.leases.append(lease)
        self._open.append(lease)
        return lease

    async def run(self, app: AsgiApp, scope: AsgiScope) -> None:
        """Charge the call by its rule, let the application answer it, and end its leases."""
        try:
            reservation = reservation_of(self._options.rules, call_of_asgi(scope))
            if reservation is not None:
                await self.reserve(reservation)
            # The exchange does not keep the scope: each request would be garbage in a circle.
            await app({**scope, _EXCHANGE: self}, self._note_receive, self._note_send)
        except BaseException as error:
            # A client that left has used what it used, even if it saw none of it.
            await self._end(kept=self._has_begun or self._has_left)
            answer = None if self._has_begun else self._options.answer(_alone(error))
            if answer is None:
                raise
            await self._reply(answer, scope)
        else:
            # A start without a byte: the client left while the application worked.
            is_served = self._has_begun or self._start is not None
            await self._end(kept=is_served or self._has_left)

    async def _end(self, *, kept: bool) -> None:
        """End every lease. An interrupt is raised again when all of them have ended."""
        interrupt: BaseException | None = None
        while self._open:
            lease = self._open.pop()
            try:
                await (lease.commit() if kept else lease.release())
            except (LeaseExpiredError, RateLimiterUnavailable):
                # The application has ended it, or the store is down, which has been logged.
                continue
            except BaseException as error:
                interrupt = interrupt or error
        if interrupt is not None:
            raise interrupt

    async def _note_receive(self) -> Message:
        message = await self._receive()
        if message["type"] in ("http.disconnect", "websocket.disconnect"):
            self._has_left = True
        return message

    async def _note_send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self._start = message
        elif kind.startswith("websocket."):
            await self._send_to_socket(message)
        elif kind == "http.response.body":
            is_last = not message.get("more_body", False)
            if is_last or message.get("body"):
                await self._begin()
                if is_last:
                    # Before the last byte, so that the client's next request finds it written.
                    await self._end(kept=True)
                await self._send(message)
        else:
            await self._begin()
            await self._send(message)

    async def _begin(self) -> None:
        """Send the start of the response, once."""
        start, self._start = self._start, None
        if start is not None:
            await self._send(await self._begun(start, start["status"]))

    async def _begun(self, message: Message, status: int) -> Message:
        """Return the first message with the fields of the limits. A call that has failed is given
        back before its client knows, and may try again."""
        fields = self._options.fields(self.leases)
        if self._options.refunds(status):
            await self._end(kept=False)
        self._has_begun = True
        return {**message, "headers": [*message.get("headers", ()), *_encoded(fields)]}

    async def _send_to_socket(self, message: Message) -> None:
        if message["type"] in ("websocket.accept", f"{_DENIAL}.start"):
            message = await self._begun(message, message.get("status", 101))
        self._has_begun = True
        await self._send(message)

    async def _reply(self, answer: HttpAnswer, scope: AsgiScope) -> None:
        """Send an answer in place of the application's."""
        prefix = "http.response"
        if scope["type"] == "websocket":
            prefix = _DENIAL
            if _DENIAL not in (scope.get("extensions") or {}):
                await self._send({"type": "websocket.close", "code": _POLICY_VIOLATION})
                return
        headers = _encoded(answer.fields)
        await self._send({"type": f"{prefix}.start", "status": answer.status, "headers": headers})
        body = answer.body_for(scope.get("method"))
        await self._send({"type": f"{prefix}.body", "body": body})


def _alone(error: BaseException) -> BaseException:
    """Return the error inside a group of one: task groups wrap what their tasks raise."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _encoded(fields: Fields) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in fields]
