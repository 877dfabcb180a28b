"""Streaming gateways with every framework, behind real servers: statuses, fields, charges."""

from __future__ import annotations

import json
import socket
import time
from contextlib import closing

import pytest

from tests.integrations.gateway_rules import read_log
from tests.integrations.gateways import Gateway


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
    while not read_log(gateway.log)[1][gateway.key]:
        assert time.monotonic() < deadline_s, "the server goes on for a client that has left"
        time.sleep(0.05)
    calls, tokens = read_log(gateway.log)
    assert 0 < tokens[gateway.key] < 10_000
    expected = calls[gateway.key], tokens[gateway.key]
    assert gateway.charged_at_last(expected) == expected
