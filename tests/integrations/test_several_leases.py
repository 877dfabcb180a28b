"""Calls that hold several leases, and views that cannot hold any."""

from __future__ import annotations

from typing import Any

import pytest

from zae_limiter import Limit, SyncRateLimiter, SyncRepository, ValidationError
from zae_limiter.integrations.django import charging_view
from zae_limiter.integrations.http_options import HttpOptions
from zae_limiter.integrations.rule import Rule
from zae_limiter.integrations.sync_exchange import SyncExchange


def test_fields_of_several_leases_are_lists_of_all_their_limits() -> None:
    with SyncRateLimiter(repository=SyncRepository.open(url="memory://")) as limiter:
        exchange = SyncExchange(HttpOptions(legacy_fields=True), limiter)
        for name, capacity in (("calls", 9), ("words", 5)):
            exchange.reserve(
                {
                    "entity_id": "key-1",
                    "resource": name,
                    "consume": {name: 1},
                    "limits": [Limit.per_day(name, capacity)],
                    "timeout": None,
                }
            )
        fields = exchange.fields()
        exchange.end(kept=False)
        left = limiter.available("key-1", "calls", [Limit.per_day("calls", 9)])
    assert dict(fields)["RateLimit"] == '"calls";r=8, "words";r=4'
    assert dict(fields)["X-RateLimit-Limit"] == "9"
    assert len(fields) == len(dict(fields))
    assert left == {"calls": 9}


def test_an_asynchronous_django_view_is_refused_when_it_is_decorated() -> None:
    async def view(request: Any) -> None: ...

    with pytest.raises(ValidationError, match=r"is asynchronous: wrap the application in"):
        charging_view(Rule("api"))(view)
