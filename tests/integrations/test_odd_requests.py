"""Odd but legal requests, sent byte by byte to gateways of every framework."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from tests.integrations.gateways import Gateway


def exchanged(gateway: Gateway, *requests: str) -> bytes:
    """All that a server sends to requests that come in one piece."""
    with closing(socket.create_connection(("127.0.0.1", gateway.port), timeout=30)) as client:
        client.sendall("".join(requests).encode("latin-1"))
        read = b""
        while more := client.recv(65_536):
            read += more
    return read


def asked(gateway: Gateway, line: str, *fields: str) -> str:
    head = [f"{line}", "host: a", f"x-api-key: {gateway.key}", *fields]
    return "\r\n".join(head) + "\r\n\r\n"


LAST = "connection: close"


def test_a_refused_head_request_has_no_body(gateway: Gateway) -> None:
    for _ in range(2):
        assert gateway.status("/small") == 200
    answers = exchanged(
        gateway,
        asked(gateway, "HEAD /small HTTP/1.1"),
        asked(gateway, "HEAD /small HTTP/1.1", LAST),
    )
    assert answers.count(b"HTTP/1.1 429") == 2
    # Bytes of a body would be read as the beginning of the next answer.
    assert b"quota-exceeded" not in answers
    assert answers.endswith(b"\r\n\r\n")


def test_a_client_of_http_1_0_is_answered_and_charged(gateway: Gateway) -> None:
    answer = exchanged(gateway, asked(gateway, f"GET /stream?key={gateway.key}&chunks=3 HTTP/1.0"))
    assert answer.count(b"x" * 100) == 3
    assert gateway.charged_at_last((1, 30)) == (1, 30)


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_a_body_is_charged(gateway: Gateway, status: int) -> None:
    request = asked(gateway, f"GET /answer/{status} HTTP/1.1", LAST)
    answer = exchanged(gateway, request)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"RateLimit".lower() in answer.lower()
    assert gateway.charged_at_last((1, 0)) == (1, 0)


@pytest.mark.parametrize(
    "field",
    [
        "x-api-key: another",
        "x-api-key: key\x01",
        "x-api-key: k\u00e9y",
        'x-api-key: "quoted"',
        "x-api-key: " + "k" * 3000,
        "x-api-key:",
    ],
)
def test_a_key_that_is_no_entity_id_charges_nobody(gateway: Gateway, field: str) -> None:
    requests = ["GET /consume?n=1 HTTP/1.1", "host: a", LAST]
    requests += [f"x-api-key: {gateway.key}", field] if "another" in field else [field]
    answer = exchanged(gateway, "\r\n".join(requests) + "\r\n\r\n")
    # Some servers refuse a control character themselves.
    assert answer.split()[1] == b"400", answer[:200]
    assert gateway.charged == (0, 0)


def test_pipelined_requests_are_charged_one_by_one(gateway: Gateway) -> None:
    requests = [asked(gateway, "GET /small HTTP/1.1") for _ in range(4)]
    answers = exchanged(gateway, *requests, asked(gateway, "GET /small HTTP/1.1", LAST))
    assert answers.count(b"HTTP/1.1 200") == 2
    assert answers.count(b"HTTP/1.1 429") == 3
