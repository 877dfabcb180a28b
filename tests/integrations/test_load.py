"""Gateways with several workers under unruly clients: charges equal what was served."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.integrations.gateway_rules import REQUESTS, read_log
from tests.integrations.gateways import Gateway, Kind, gateway_behind
from tests.integrations.unruly_clients import crowd

_QUIET_S = 2.0


def served(gateway: Gateway) -> tuple[int, int]:
    calls, tokens = read_log(gateway.log)
    return calls[gateway.key], tokens[gateway.key]


def when_quiet(gateway: Gateway) -> tuple[int, int]:
    """What was served, once nothing has been for a while."""
    deadline_s = time.monotonic() + 120
    found, since_s = served(gateway), time.monotonic()
    while time.monotonic() - since_s < _QUIET_S:
        assert time.monotonic() < deadline_s, "the gateway serves clients that have left"
        time.sleep(0.1)
        now = served(gateway)
        if now != found:
            found, since_s = now, time.monotonic()
    return found


def check(kind: Kind, folder: Path, url: str, workers: int) -> None:
    with gateway_behind(kind, folder, url, workers) as gateway:
        gateway.key = "key-1"
        seen = crowd(gateway, clients=12, calls_each=30)
        expected = when_quiet(gateway)
        assert gateway.charged_at_last(expected) == expected
    assert expected[0] <= REQUESTS
    assert set(seen) <= {"200", "429", "500"}
    assert min(seen["200"], seen["500"]) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "workers"), [("uvicorn", 4), ("wrapped", 2), ("flask", 2), ("django", 2)]
)
def test_charges_equal_what_was_served_on_sqlite(kind: Kind, workers: int, tmp_path: Path) -> None:
    check(kind, tmp_path, f"sqlite:///{tmp_path}/limits.db", workers)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "workers"), [("uvicorn", 4), ("flask", 2), ("django", 2), ("forked", 2)]
)
def test_charges_equal_what_was_served_on_dynamodb(
    kind: Kind, workers: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    check(kind, tmp_path, request.getfixturevalue("table").url, workers)
