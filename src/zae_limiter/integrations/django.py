"""Django middleware that charges requests by rules, and a decorator for single views.

    limiter = SyncRateLimiter(...)                  # project/limits.py
    middleware = charging_middleware(limiter, [Rule("api", key=by_header("x-api-key"))])

    MIDDLEWARE = ["project.limits.middleware", ...]                  # project/settings.py

Django answers 500 when a view raises, so the middleware looks at the status. Under ASGI, wrap the
application in `integrations.asgi.RateLimitMiddleware` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from inspect import iscoroutinefunction
from itertools import chain
from typing import Any

from ..core.exceptions import ValidationError
from ..lease import SyncLease
from ..sync_limiter import SyncRateLimiter
from .call import call_of_wsgi
from .http_fields import Expose
from .http_options import HttpOptions, is_server_error
from .missing import missing_extra
from .problem import HttpAnswer
from .rule import Rule
from .sync_exchange import LeasedBody, SyncExchange

try:
    from django.http import HttpResponse
except ImportError as error:
    raise missing_extra("django") from error

GetResponse = Callable[[Any], Any]
DjangoView = Callable[..., Any]
_EXCHANGE = "zae_limiter_exchange"


def charging_middleware(
    limiter: SyncRateLimiter,
    rules: Sequence[Rule] = (),
    *,
    expose: Expose = "own",
    legacy_fields: bool = False,
    refunds: Callable[[int], bool] = is_server_error,
) -> Callable[[GetResponse], DjangoRateLimits]:
    """Return middleware that a Django project can name in its settings."""
    options = HttpOptions(rules, expose, legacy_fields, refunds)

    def middleware(get_response: GetResponse) -> DjangoRateLimits:
        return DjangoRateLimits(get_response, limiter, options)

    return middleware


def charging_view(rule: Rule) -> Callable[[DjangoView], DjangoView]:
    """Return a decorator that charges a view by a rule, whatever its path."""

    def decorated(view: DjangoView) -> DjangoView:
        if iscoroutinefunction(view):
            reason = (
                "is asynchronous: wrap the application in integrations.asgi.RateLimitMiddleware"
            )
            raise ValidationError("view", view.__name__, reason)

        @wraps(view)
        def charged(request: Any, *arguments: Any, **named: Any) -> Any:
            reservation = rule.reservation(call_of_wsgi(request.META, request))
            if reservation is not None:
                _exchange_of(request).reserve(reservation)
            return view(request, *arguments, **named)

        return charged

    return decorated


def lease_of_request(request: Any) -> SyncLease | None:
    """Return the first lease of a Django request; None for a request that is exempt."""
    leases = _exchange_of(request).leases
    return leases[0] if leases else None


def _exchange_of(request: Any) -> SyncExchange:
    found = getattr(request, _EXCHANGE, None)
    if not isinstance(found, SyncExchange):
        reason = "lacks the middleware of charging_middleware: add it first"
        raise ValidationError("MIDDLEWARE", request.path, reason)
    return found


class DjangoRateLimits:
    """The middleware, as Django instantiates it."""

    sync_capable = True
    async_capable = False

    def __init__(
        self, get_response: GetResponse, limiter: SyncRateLimiter, options: HttpOptions
    ) -> None:
        self._get_response = get_response
        self._limiter = limiter
        self._options = options

    def __call__(self, request: Any) -> Any:
        exchange = SyncExchange(self._options, self._limiter)
        setattr(request, _EXCHANGE, exchange)
        try:
            exchange.charge(call_of_wsgi(request.META, request))
            response = self._get_response(request)
            first = _first_chunk(response)
        except BaseException as error:
            answer = exchange.refuse(error)
            if answer is None:
                raise
            return _response(answer, request)
        for name, value in exchange.fields():
            response.headers[name] = value
        if first is None or exchange.refunds(response.status_code):
            exchange.settle(response.status_code)
        else:
            _hold_while_streamed(exchange, response, first)
        return response

    def process_exception(self, request: Any, error: Exception) -> Any:
        """Answer a refusal that a view raised, before Django makes a 500 of it."""
        answer = self._options.answer(error)
        if answer is None:
            return None
        _exchange_of(request).end(kept=False)
        return _response(answer, request)


def _first_chunk(response: Any) -> Iterator[bytes] | None:
    """Return the chunks of a streaming response, the first of which has been made: until then a
    failure still has a status. None for a response that is whole, or that asyncio streams."""
    if not response.streaming or response.is_async:
        return None
    chunks = iter(response.streaming_content)
    return chain([next((chunk for chunk in chunks if chunk), b"")], chunks)


def _hold_while_streamed(exchange: SyncExchange, response: Any, chunks: Iterator[bytes]) -> None:
    """Keep the leases until the response has been streamed or its client has left."""

    def end() -> None:
        exchange.end(kept=True)

    # Django closes what the response had before by itself.
    response.streaming_content = LeasedBody(chunks, None, end)


def _response(answer: HttpAnswer, request: Any) -> Any:
    body = answer.body_for(request.method)
    return HttpResponse(body, status=answer.status, headers=dict(answer.fields))
