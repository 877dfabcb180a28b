"""This module writes limits as HTTP fields: those of the IETF draft `ratelimit-headers` (-11).

    RateLimit-Policy: "rpm";q=100;w=60     at most 100, which take 60 seconds to refill
    RateLimit: "rpm";r=0;t=30              nothing is left; in 30 seconds the request would fit

`t` is the time after which waiting has helped, and absent while tokens remain. `Retry-After` is
the longest `t`, of limits that are not shown as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from ..core.limit import MILLI, Limit
from ..core.models import LimitStatus
from ..core.rates import rate_of

Expose = Literal["own", "all"]
Fields = list[tuple[str, str]]
# Structured fields hold integers of at most 15 digits.
_MAX_INTEGER = 10**15 - 1
_MAX_RETRY_SECONDS = 10**9


def shown_statuses(statuses: Sequence[LimitStatus], expose: Expose) -> list[LimitStatus]:
    """Return the statuses that a caller may see: those of its own entity, which come first, or
    those of its ancestors as well."""
    if expose == "all" or not statuses:
        return list(statuses)
    own = statuses[0].entity_id
    return [status for status in statuses if status.entity_id == own]


def policy_names(statuses: Sequence[LimitStatus]) -> list[str]:
    """Return the name of each limit, with the entity's id in front where it is an ancestor's."""
    own = statuses[0].entity_id if statuses else ""
    return [
        s.limit_name if s.entity_id == own else f"{s.entity_id}/{s.limit_name}" for s in statuses
    ]


def rate_limit_fields(
    statuses: Sequence[LimitStatus], expose: Expose = "own", *, legacy: bool = False
) -> Fields:
    """Return `RateLimit-Policy` and `RateLimit` and, if `legacy`, `X-RateLimit-*` of the limit that
    is nearest to its end."""
    shown = shown_statuses(statuses, expose)
    if not shown:
        return []
    is_refused = any(status.exceeded for status in statuses)
    names = policy_names(shown)
    policies = [
        f'"{n}";q={_integer(s.limit.capacity)};w={_window_seconds(s.limit)}'
        for n, s in zip(names, shown, strict=True)
    ]
    balances = [
        f'"{n}";r={_integer(s.available)}{_wait(s, is_refused)}'
        for n, s in zip(names, shown, strict=True)
    ]
    fields = [("RateLimit-Policy", ", ".join(policies)), ("RateLimit", ", ".join(balances))]
    return [*fields, *_legacy_fields(shown)] if legacy else fields


def retry_after(seconds: float) -> str | None:
    """Return whole seconds for `Retry-After`, rounded up; None when waiting cannot help."""
    if math.isinf(seconds):
        return None
    return str(min(max(1, math.ceil(seconds)), _MAX_RETRY_SECONDS))


def _wait(status: LimitStatus, is_refused: bool) -> str:
    """Return `;t=` with the seconds to wait. A limit that has not refused says nothing in a
    refusal: `Retry-After` must not be less than any `t`."""
    if status.exceeded:
        seconds = retry_after(status.retry_after_seconds)
        return "" if seconds is None else f";t={seconds}"
    if is_refused or status.available > 0:
        return ""
    return f";t={_seconds_to_gain(status.limit, 1 - status.available)}"


def _legacy_fields(shown: Sequence[LimitStatus]) -> Fields:
    worst = min(shown, key=lambda s: (not s.exceeded, s.available / s.limit.capacity))
    left = _integer(worst.available)
    return [
        ("X-RateLimit-Limit", str(worst.limit.capacity)),
        ("X-RateLimit-Remaining", str(left)),
        ("X-RateLimit-Reset", str(_seconds_to_gain(worst.limit, worst.limit.capacity - left))),
    ]


def _window_seconds(limit: Limit) -> int:
    """The time in which all of the limit refills, so that `q / w` is never above its rate."""
    return max(1, _seconds_to_gain(limit, limit.capacity))


def _seconds_to_gain(limit: Limit, tokens: int) -> int:
    rate = rate_of(
        limit.capacity * MILLI, limit.refill_amount * MILLI, limit.refill_period_seconds * 1000
    )
    return _integer(-(-rate.time_to_gain_ms(tokens * MILLI) // 1000))


def _integer(amount: int) -> int:
    """The amount as a structured field may hold it; a debt is nothing left."""
    return min(max(0, amount), _MAX_INTEGER)
