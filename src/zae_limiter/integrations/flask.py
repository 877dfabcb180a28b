"""A Flask extension that charges requests by rules, or views by a decorator.

limits = RateLimits(limiter, [exempt("/health"), Rule("api", key=by_header("x-api-key"))])
limits.init_app(app)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from ..core.exceptions import RateLimiterUnavailable, ValidationError
from ..core.rate_limit_exceeded import RateLimitExceeded
from ..lease import SyncLease
from ..sync_limiter import SyncRateLimiter
from .call import call_of_wsgi
from .http_fields import Expose
from .http_options import is_server_error
from .missing import missing_extra
from .rule import Rule
from .wsgi import WsgiRateLimitMiddleware, exchange_of_environ, lease_of_environ

try:
    from flask import Flask, Response, current_app, request
except ImportError as error:
    raise missing_extra("flask") from error

FlaskView = Callable[..., Any]


class RateLimits:
    """The extension: middleware around an application, and answers to what its views raise."""

    def __init__(
        self,
        limiter: SyncRateLimiter,
        rules: Sequence[Rule] = (),
        *,
        expose: Expose = "own",
        legacy_fields: bool = False,
        refunds: Callable[[int], bool] = is_server_error,
    ) -> None:
        self._limiter = limiter
        self._rules = rules
        self._expose = expose
        self._legacy_fields = legacy_fields
        self._refunds = refunds

    def init_app(self, app: Flask) -> None:
        """Limit an application."""
        app.wsgi_app = WsgiRateLimitMiddleware(  # type: ignore[method-assign]
            app.wsgi_app,
            self._limiter,
            self._rules,
            expose=self._expose,
            legacy_fields=self._legacy_fields,
            refunds=self._refunds,
        )
        for kind in (RateLimitExceeded, RateLimiterUnavailable, ValidationError):
            app.register_error_handler(kind, _answer)

    def charging(self, rule: Rule) -> Callable[[FlaskView], FlaskView]:
        """Return a decorator that charges a view by a rule, whatever its path."""

        def decorated(view: FlaskView) -> FlaskView:
            @wraps(view)
            def charged(*arguments: Any, **named: Any) -> Any:
                reservation = rule.reservation(call_of_wsgi(request.environ, request))
                if reservation is not None:
                    exchange_of_environ(request.environ).reserve(reservation)
                return current_app.ensure_sync(view)(*arguments, **named)

            return charged

        return decorated

    @property
    def lease(self) -> SyncLease | None:
        """The first lease of the current request; None for a request that is exempt."""
        return lease_of_environ(request.environ)


def _answer(error: Exception) -> Response:
    answer = exchange_of_environ(request.environ).refuse(error)
    if answer is None:
        raise error
    return Response(answer.body, answer.status, answer.fields)
