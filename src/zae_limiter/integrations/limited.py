"""A decorator that charges each call of a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar, cast

from ..core.exceptions import ValidationError
from ..limiter import RateLimiter
from ..limiter_base import OnError
from ..sync_limiter import SyncRateLimiter
from .rule import REQUEST_LIMIT, Cost, LimitTexts, Reservation, amounts_of, read_limits

P = ParamSpec("P")
Result = TypeVar("Result")


def limited(
    limiter: RateLimiter | SyncRateLimiter,
    resource: str,
    *,
    key: str | Callable[..., str],
    cost: Cost | Callable[..., Cost] | None = None,
    limits: LimitTexts | None = None,
    timeout: float | None = None,
    on_error: OnError = "refund",
) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Return a decorator that charges each call of a function before it runs.

    `key` and `cost` may be functions of the call's arguments. An asynchronous function needs a
    `RateLimiter`, any other a `SyncRateLimiter`.
    """
    asked = read_limits(limits)

    def reservation(*arguments: Any, **named: Any) -> Reservation:
        amounts = cost(*arguments, **named) if callable(cost) else cost
        return {
            "entity_id": key if isinstance(key, str) else key(*arguments, **named),
            "resource": resource,
            "consume": {REQUEST_LIMIT: 1} if cost is None else amounts_of(amounts),
            "limits": asked,
            "timeout": timeout,
        }

    def decorated(function: Callable[P, Result]) -> Callable[P, Result]:
        _check(function, limiter)

        @wraps(function)
        async def charged(*arguments: P.args, **named: P.kwargs) -> Any:
            terms = reservation(*arguments, **named)
            async with cast(RateLimiter, limiter).acquire(**terms, on_error=on_error):
                return await cast(Any, function)(*arguments, **named)

        @wraps(function)
        def charged_blocking(*arguments: P.args, **named: P.kwargs) -> Result:
            terms = reservation(*arguments, **named)
            with cast(SyncRateLimiter, limiter).acquire(**terms, on_error=on_error):
                return function(*arguments, **named)

        is_async = isinstance(limiter, RateLimiter)
        return cast(Callable[P, Result], charged) if is_async else charged_blocking

    return decorated


def _check(function: Callable[..., object], limiter: object) -> None:
    """Refuse a function that the limiter cannot charge: the block would end before its work."""
    called, name = _called(function), getattr(function, "__name__", repr(function))
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        reason = "is a generator: use limiter.reserve, and commit when the stream ends"
        raise ValidationError("function", name, reason)
    wanted = RateLimiter if inspect.iscoroutinefunction(called) else SyncRateLimiter
    if not isinstance(limiter, wanted):
        reason = f"needs a {wanted.__name__}, not a {type(limiter).__name__}"
        raise ValidationError("function", name, reason)


def _called(function: Callable[..., object]) -> Callable[..., object]:
    """Return the function that runs when an object is called."""
    while isinstance(function, partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__
