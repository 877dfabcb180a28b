"""WSGI middleware that looks at a response's status before it keeps a charge.

The first chunk of a response is read before the server gets any, so that a refusal or a failure
before it is still an answer with a status. A status such as 500 gives the charge back, since
frameworks answer so when a handler fails. A handler finds its lease with
`lease_of_environ(environ)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from math import inf
from typing import Any

from ..core.exceptions import ValidationError
from ..lease import SyncLease
from ..sync_limiter import SyncRateLimiter
from .call import call_of_wsgi
from .http_fields import Expose
from .http_options import HttpOptions, is_server_error
from .rule import Rule
from .sync_exchange import LeasedBody, SyncExchange, close_body

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], object]]
WsgiApp = Callable[[Environ, StartResponse], Iterable[bytes]]
_EXCHANGE = "zae_limiter.exchange"


class WsgiRateLimitMiddleware:
    """Middleware that charges requests by rules, and answers refusals."""

    def __init__(
        self,
        app: WsgiApp,
        limiter: SyncRateLimiter,
        rules: Sequence[Rule] = (),
        *,
        expose: Expose = "own",
        legacy_fields: bool = False,
        refunds: Callable[[int], bool] = is_server_error,
    ) -> None:
        self.app = app
        self.limiter = limiter
        self.options = HttpOptions(rules, expose, legacy_fields, refunds)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        exchange = SyncExchange(self.options, self.limiter)
        return _Response(exchange, start_response).of(self.app, {**environ, _EXCHANGE: exchange})


def exchange_of_environ(environ: Environ) -> SyncExchange:
    """Return the exchange that an environment belongs to."""
    found = environ.get(_EXCHANGE)
    if not isinstance(found, SyncExchange):
        reason = "has no WsgiRateLimitMiddleware: add it first"
        raise ValidationError("app", environ.get("PATH_INFO"), reason)
    return found


def lease_of_environ(environ: Environ) -> SyncLease | None:
    """Return the first lease of a request; None for a request that is exempt."""
    leases = exchange_of_environ(environ).leases
    return leases[0] if leases else None


class _Response:
    """The response of an application, as far as the server has not seen it. Its start is held back
    until its first byte, so that it can still be replaced, and tells what the byte has cost."""

    def __init__(self, exchange: SyncExchange, start_response: StartResponse) -> None:
        self._exchange = exchange
        self._start_response = start_response
        self._status: int | None = None
        self._length: float = inf
        self._held: tuple[str, list[tuple[str, str]]] | None = None
        self._write: Callable[[bytes], object] | None = None

    def of(self, app: WsgiApp, environ: Environ) -> Iterable[bytes]:
        """Charge the request, and return the response to it up to its first chunk."""
        body: Iterable[bytes] = ()
        try:
            self._exchange.charge(call_of_wsgi(environ))
            body = app(environ, self._start)
            chunks = iter(body)
            first = next((chunk for chunk in chunks if chunk), b"")
        except BaseException as error:
            close_body(body)
            return self._failed(error, environ)
        self._begin()
        if len(first) >= self._length or self._exchange.refunds(self._status or 0):
            # All there is, or a failure: ended before the client knows, and sends the next.
            self._end()
        return LeasedBody(chain((first,), chunks), body, self._end)

    def _failed(self, error: BaseException, environ: Environ) -> Iterable[bytes]:
        if self._write is not None:
            self._exchange.end(kept=True)
            raise error
        answer = self._exchange.refuse(error)
        if answer is None:
            raise error
        self._start_response(answer.status_line, answer.fields)
        return [answer.body_for(environ["REQUEST_METHOD"])]

    def _start(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], object]:
        if self._write is not None:
            # Too late for another start: the server says so, as PEP 3333 wants.
            return self._start_response(status, headers, exc_info)
        if self._held is not None and exc_info is None:
            raise AssertionError(
                "start_response was called twice, the second time without an error"
            )
        self._status = int(status.partition(" ")[0])
        lengths = [float(value) for name, value in headers if name.lower() == "content-length"]
        self._length = lengths[0] if lengths else inf
        self._held = (status, headers)
        return self._write_through

    def _begin(self) -> Callable[[bytes], object] | None:
        """Start the server's response, once. Without a start of the application there is none."""
        if self._write is None and self._held is not None:
            status, headers = self._held
            self._write = self._start_response(status, [*headers, *self._exchange.fields()])
        return self._write

    def _write_through(self, chunk: bytes) -> object:
        write = self._begin()
        assert write is not None
        return write(chunk)

    def _end(self) -> None:
        """End the leases. Without a status there was no response, and nothing to charge for."""
        if self._status is None:
            self._exchange.end(kept=False)
        else:
            self._exchange.settle(self._status)
