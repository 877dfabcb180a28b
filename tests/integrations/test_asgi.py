"""ASGI alone: WebSockets and mounted applications."""

from __future__ import annotations

from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.integrations.gateways import Gateway

# Of the kinds of gateways, the one of ASGI.
pytestmark = pytest.mark.parametrize("running", ["uvicorn"], indirect=True, scope="module")


def test_mounted_applications_are_charged_by_the_whole_path(gateway: Gateway) -> None:
    paths = ["/inner/small", "/small", "/inner/small"]
    assert [gateway.status(path) for path in paths] == [200, 200, 429]


def websocket(gateway: Gateway, what: str) -> Any:
    url = f"ws://127.0.0.1:{gateway.port}/ws/{what}"
    return connect(url, additional_headers={"x-api-key": gateway.key}, proxy=None)


def test_a_websocket_is_refused_with_429_before_it_opens(gateway: Gateway) -> None:
    for left in (1, 0):
        with websocket(gateway, "small") as client:
            assert client.response.headers["RateLimit"].startswith(f'"rpm";r={left}')
            client.send("ping")
            assert client.recv() == "pong"
    with pytest.raises(InvalidStatus) as refused:
        websocket(gateway, "small")
    assert refused.value.response.status_code == 429
    assert "Retry-After" in refused.value.response.headers


def test_a_websocket_that_fails_before_it_opens_is_not_charged(gateway: Gateway) -> None:
    for _ in range(3):
        with pytest.raises(InvalidStatus):
            websocket(gateway, "fails")
    with websocket(gateway, "small") as client:
        assert client.response.headers["RateLimit"] == '"rpm";r=1'
