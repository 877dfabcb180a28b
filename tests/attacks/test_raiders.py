"""Tokens that one client holds in vain are no reason to refuse another."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.drivers import StoreKind
from tests.support.servers.tables import OwnTable

from .effort import effort
from .raiders import PARENT, prepare, raiders, refusals

CALLS = {"sqlite": effort(1000, 2000), "dynamodb": effort(100, 2000)}
COUNTS = effort([4], [1, 4])
LIFETIMES = effort([0.0], [0.0, 1.0])
# All that the parent has is held; or what several raiders hold is too much for the other request.
AMOUNTS = [(PARENT, 1), (PARENT // 9, PARENT * 4 // 5)]


@pytest.mark.slow
@pytest.mark.parametrize("cache_ttl", LIFETIMES)
@pytest.mark.parametrize("entity_id", ["good", "org"])
@pytest.mark.parametrize(("held", "asked"), AMOUNTS)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("store_kind", ["sqlite", "dynamodb"], indirect=True)
def test_nobody_is_refused_for_tokens_that_raiders_hold_in_vain(
    store_kind: StoreKind,
    place: Path | OwnTable,
    count: int,
    held: int,
    asked: int,
    entity_id: str,
    cache_ttl: float,
) -> None:
    """The entity is a sibling of the raiders' keys, or their parent itself."""
    url = place.url if isinstance(place, OwnTable) else f"sqlite:///{place / 'limits.db'}"
    prepare(url)
    with raiders(url, count, held):
        time.sleep(0.3)
        assert refusals(url, entity_id, asked, CALLS[store_kind], cache_ttl) == 0
