"""The ASGI middleware and the FastAPI dependency, behind uvicorn."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.docs.test_examples import ROOT
from tests.integrations.served_log import REQUESTS, TOKENS, read_log
from tests.support.servers.processes import free_port
from tests.support.web_servers import served
from zae_limiter import SyncRateLimiter, SyncRepository

_keys = count()


class Gateway:
    """A gateway that runs, and a key of its own for each test."""

    def __init__(self, port: int, limiter: SyncRateLimiter, log: Path) -> None:
        self.port = port
        self.limiter = limiter
        self.log = log
        self.key = ""

    def get(self, path: str, key: str | None = None) -> tuple[HTTPResponse, bytes]:
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            headers = {"x-api-key": self.key if key is None else key}
            connection.request("GET", path, headers=headers if headers["x-api-key"] else {})
            response = connection.getresponse()
            return response, response.read()

    def status(self, path: str, key: str | None = None) -> int:
        return self.get(path, key)[0].status

    @property
    def charged(self) -> tuple[int, int]:
        """The requests and the tokens that the key has been charged."""
        left = self.limiter.available(self.key, "complete")
        return REQUESTS - left["rpm"], TOKENS - left["tpm"]

    def charged_at_last(self, expected: tuple[int, int]) -> tuple[int, int]:
        """What has been charged when the server has noticed that a client has left."""
        deadline_s = time.monotonic() + 20
        while self.charged != expected and time.monotonic() < deadline_s:
            time.sleep(0.05)
        return self.charged


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("asgi")
    port, url = free_port(), f"sqlite:///{folder}/limits.db"
    log = folder / "served"
    settings = {"ZAEL_URL": url, "SERVED_LOG": str(log), "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    command = ["uvicorn", "tests.integrations.asgi_gateway:app", "--port", str(port)]
    with (
        served(command, port, folder, settings),
        SyncRateLimiter(repository=SyncRepository.open(url=url)) as limiter,
    ):
        yield Gateway(port, limiter, log)


@pytest.fixture
def gateway(running: Gateway) -> Gateway:
    running.key = f"key-{next(_keys)}"
    return running


def test_a_refused_call_is_429_with_fields_and_a_problem(gateway: Gateway) -> None:
    first, _ = gateway.get("/small")
    assert first.status == 200
    assert first.headers["RateLimit-Policy"] == '"rpm";q=2;w=120'
    assert first.headers["RateLimit"] == '"rpm";r=1'
    assert first.headers["X-RateLimit-Remaining"] == "1"
    assert gateway.status("/small") == 200
    refused, body = gateway.get("/small")
    assert refused.status == 429
    assert 0 < int(refused.headers["Retry-After"]) <= 60
    assert refused.headers["RateLimit"] == f'"rpm";r=0;t={refused.headers["Retry-After"]}'
    assert json.loads(body)["violated-policies"] == ["rpm"]


def test_mounted_applications_are_charged_by_the_whole_path(gateway: Gateway) -> None:
    paths = ["/inner/small", "/small", "/inner/small"]
    assert [gateway.status(path) for path in paths] == [200, 200, 429]


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [
        ("/health", "", 200),
        ("/nowhere", "", 404),
        ("/small", "", 400),
        ("/small", "not an id", 400),
        ("/cost?n=-1", None, 400),
        ("/cost?n=3", None, 413),
        ("/cost?n=2", None, 200),
        ("/unconfigured", None, 500),
        ("/consume?n=50001", None, 413),
    ],
)
def test_each_kind_of_call_has_its_status(
    gateway: Gateway, path: str, key: str | None, status: int
) -> None:
    assert gateway.status(path, key) == status
    assert gateway.charged == (0, 0)


def test_limits_of_a_rule_are_text(gateway: Gateway) -> None:
    response, _ = gateway.get("/text")
    assert response.headers["RateLimit-Policy"] == '"requests";q=1;w=20'
    assert gateway.status("/text") == 429


@pytest.mark.parametrize(
    ("path", "status", "charged"),
    [
        ("/answer/200", 200, (1, 0)),
        ("/answer/404", 404, (1, 0)),
        ("/answer/500", 500, (0, 0)),
        ("/answer/503", 503, (0, 0)),
        ("/raise", 500, (0, 0)),
        ("/consume?n=400", 200, (1, 400)),
        ("/late-refusal", 413, (0, 0)),
        ("/stream?key=k&chunks=5", 200, (1, 50)),
        ("/stream?key=k&chunks=5&fails_after=0", 500, (0, 0)),
        ("/committed", 500, (1, 70)),
    ],
)
def test_a_call_is_charged_for_what_was_served(
    gateway: Gateway, path: str, status: int, charged: tuple[int, int]
) -> None:
    response, _ = gateway.get(path)
    assert response.status == status
    assert gateway.charged == charged


def test_a_stream_that_breaks_is_charged_as_far_as_it_went(gateway: Gateway) -> None:
    with closing(socket.create_connection(("127.0.0.1", gateway.port), timeout=30)) as client:
        request(client, gateway, "/stream?key=k&chunks=5&fails_after=3")
        assert read_all(client).count(b"x" * 100) == 3
    assert gateway.charged_at_last((1, 30)) == (1, 30)


def request(client: socket.socket, gateway: Gateway, path: str) -> None:
    client.sendall(f"GET {path} HTTP/1.1\r\nhost: a\r\nx-api-key: {gateway.key}\r\n\r\n".encode())


def read_all(client: socket.socket) -> bytes:
    read = b""
    while more := client.recv(65_536):
        read += more
    return read


def test_a_client_that_hangs_up_pays_for_what_was_made_for_it(gateway: Gateway) -> None:
    with closing(socket.create_connection(("127.0.0.1", gateway.port), timeout=30)) as client:
        request(client, gateway, f"/stream?key={gateway.key}&chunks=1000&pause_s=0.02")
        client.recv(65_536)
    deadline_s = time.monotonic() + 30
    while not read_log(gateway.log)[0][gateway.key]:
        assert time.monotonic() < deadline_s, "the server goes on for a client that has left"
        time.sleep(0.05)
    calls, tokens = read_log(gateway.log)
    assert 0 < tokens[gateway.key] < 10_000
    expected = calls[gateway.key], tokens[gateway.key]
    assert gateway.charged_at_last(expected) == expected


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
