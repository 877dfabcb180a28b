"""A FastAPI dependency that charges a route and gives its handler the lease.

    app.add_middleware(RateLimitMiddleware, limiter=limiter)
    Charged = Annotated[Lease, Depends(charging(Rule("chat", key=by_header("x-api-key"))))]

The middleware answers refusals and ends the lease: a dependency does not see how a stream ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ..lease import Lease
from .asgi import RateLimitMiddleware, exchange_of
from .call import call_of_asgi
from .missing import missing_extra
from .rule import Rule

try:
    from starlette.requests import HTTPConnection
except ImportError as error:
    raise missing_extra("fastapi") from error

__all__ = ["RateLimitMiddleware", "charging"]


def charging(rule: Rule) -> Callable[[HTTPConnection], Awaitable[Lease | None]]:
    """Return a dependency that charges by a rule, whatever its path; None for an exempt call."""

    async def charged(connection: HTTPConnection) -> Lease | None:
        reservation = rule.reservation(call_of_asgi(connection.scope))
        return (
            None
            if reservation is None
            else await exchange_of(connection.scope).reserve(reservation)
        )

    return charged
