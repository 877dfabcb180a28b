"""Acquires that listeners are told of. Without listeners, nothing here runs."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from ...core.events import AcquireEvent, AcquireOutcome
from ...core.exceptions import RateLimiterUnavailable
from ...core.limit import MILLI
from ...core.rate_limit_exceeded import RateLimitExceeded
from ..scope import Scope
from .lease_record import LeaseRecord
from .request import Request


async def tell_listeners(
    scope: Scope, request: Request, opening: Coroutine[Any, Any, LeaseRecord]
) -> LeaseRecord:
    """Open a lease, and tell every listener how that begins and ends."""
    consume = {name: milli // MILLI for name, milli in request.wanted_milli.items()}
    event = AcquireEvent(scope.namespace_name, request.entity_id, request.resource, consume)
    listeners = scope.local.listeners
    begun = listeners.begin(event)
    outcome = AcquireOutcome("failed")
    try:
        record = await opening
        outcome = AcquireOutcome("degraded" if record.degraded else "admitted")
        return record
    except RateLimitExceeded as error:
        outcome = AcquireOutcome("refused", error)
        raise
    except RateLimiterUnavailable as error:
        outcome = AcquireOutcome("unavailable", error)
        raise
    except BaseException as error:
        outcome = AcquireOutcome("failed", error)
        raise
    finally:
        listeners.end(begun, outcome)
