"""The complete gateway of examples/: statuses, fields, metrics, charges under unruly clients."""

from __future__ import annotations

import json
import random
import re
import shutil
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.example_gateway import (
    EXAMPLE,
    KEYS,
    PROJECT,
    PROJECT_REQUESTS,
    ExampleGateway,
    chat,
    example_gateway,
)
from tests.support.model_server import INPUT_TOKENS, OUTPUT_TOKENS, RETRY_AFTER_S, TEXT
from zae_limiter.integrations.llm import four_bytes_a_token

USED = INPUT_TOKENS + OUTPUT_TOKENS
PROMPT_TOKENS = 8
_STATUS = re.compile(rb"^HTTP/1\.1 ([0-9]{3}) ", re.M)
_QUIET_S = 2.0
_RESET = struct.pack("ii", 1, 0)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExampleGateway]:
    folder = tmp_path_factory.mktemp("gateway")
    with example_gateway(folder, f"sqlite:///{folder}/limits.db") as running:
        yield running


@pytest.mark.parametrize(
    ("body", "key", "status", "charged"),
    [
        (chat("plain"), "sk-demo-1", 200, (1, USED)),
        (chat("plain", stream=True), "sk-demo-1", 200, (1, USED)),
        (chat("silent"), "sk-demo-1", 200, (1, PROMPT_TOKENS + four_bytes_a_token(TEXT))),
        (chat("plain"), None, 401, (0, 0)),
        (chat("plain"), "sk-demo-1\u00e9", 401, (0, 0)),
        (chat("failing"), "sk-demo-1", 502, (0, 0)),
        (chat("failing", stream=True), "sk-demo-1", 502, (0, 0)),
        (chat("plain", max_tokens=10**6), "sk-demo-1", 413, (0, 0)),
        (chat("plain", max_tokens=10**30), "sk-demo-1", 400, (0, 0)),
        (chat("plain", max_tokens=-1), "sk-demo-1", 422, (1, 0)),
        ({"model": "plain"}, "sk-demo-1", 422, (1, 0)),
    ],
)
def test_a_call_of_the_example_gateway_is_charged_for_what_was_served(
    gateway: ExampleGateway,
    body: Any,
    key: str | None,
    status: int,
    charged: tuple[int, int],
) -> None:
    before = gateway.charged("acme-search-key-1")
    response, answer = gateway.post(body, key)
    after = gateway.charged("acme-search-key-1")
    assert response.status == status, answer
    assert (after[0] - before[0], after[1] - before[1]) == charged
    if status == 200:
        assert re.fullmatch(r'"rpm";r=\d+, "tpm";r=\d+', response.headers["RateLimit"])


def test_the_example_gateway_leaves_a_busy_provider_alone(gateway: ExampleGateway) -> None:
    before = gateway.charged("acme-search-key-1")
    statuses = [gateway.post(chat("busy"))[0] for _ in range(2)]
    assert [each.status for each in statuses] == [503, 503]
    assert 0 < int(statuses[1].headers["Retry-After"]) <= RETRY_AFTER_S
    assert gateway.charged("acme-search-key-1") == before


def test_the_example_gateway_counts_what_it_admits(gateway: ExampleGateway) -> None:
    def admitted() -> float:
        return counted(gateway.metrics(), 'outcome="admitted"')

    before = admitted()
    gateway.post(chat("plain"))
    assert admitted() == before + 1


def counted(metrics: str, label: str) -> float:
    pattern = rf"^zae_limiter_acquires_total{{[^}}]*{label}[^}}]*}} ([0-9.]+)$"
    return sum(float(found) for found in re.findall(pattern, metrics, re.M))


def test_the_example_gateway_names_no_ancestor_when_one_refuses(gateway: ExampleGateway) -> None:
    left = gateway.limiter.available(PROJECT, "chat")["rpm"]
    lease = gateway.limiter.reserve(PROJECT, "chat", {"rpm": left})
    response, body = gateway.post(chat("plain"), "sk-demo-2")
    lease.release()
    assert (response.status, int(response.headers["Retry-After"]) > 1) == (429, True)
    assert json.loads(body)["violated-policies"] == []
    assert PROJECT.encode() not in body + str(response.headers).encode()


def request(body: Any, key: str, *, last: bool = True) -> bytes:
    text = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {key}\r\n"
    about = f"content-type: application/json\r\ncontent-length: {len(text)}\r\n"
    end = "connection: close\r\n\r\n" if last else "\r\n"
    return (head + about + end).encode() + text


def read_statuses(client: socket.socket) -> Counter[str]:
    read = b""
    while more := client.recv(65_536):
        read += more
    return Counter(status.decode() for status in _STATUS.findall(read))


def reads(client: socket.socket, key: str) -> Counter[str]:
    client.sendall(request(chat("plain", stream=True), key))
    return read_statuses(client)


def asks_for_all_at_once(client: socket.socket, key: str) -> Counter[str]:
    client.sendall(request(chat("plain"), key))
    return read_statuses(client)


def pipelines(client: socket.socket, key: str) -> Counter[str]:
    first, second = chat("plain", stream=True), chat("silent", stream=True)
    client.sendall(request(first, key, last=False) + request(second, key))
    return read_statuses(client)


def hangs_up_in_the_middle(client: socket.socket, key: str) -> Counter[str]:
    client.sendall(request(chat("steady", stream=True), key))
    client.recv(2_000)
    return Counter()


def hangs_up_at_once(client: socket.socket, key: str) -> Counter[str]:
    client.sendall(request(chat("steady", stream=True), key))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    return Counter()


def hangs_up_in_the_request(client: socket.socket, key: str) -> Counter[str]:
    client.sendall(request(chat("plain", stream=True), key)[:-9])
    return Counter()


def times_out(client: socket.socket, key: str) -> Counter[str]:
    client.settimeout(0.1)
    client.sendall(request(chat("steady", stream=True), key))
    return read_statuses(client)


def sees_it_break(client: socket.socket, key: str) -> Counter[str]:
    client.sendall(request(chat("broken", stream=True), key))
    return read_statuses(client)


def gets_an_error(client: socket.socket, key: str) -> Counter[str]:
    client.sendall(request(chat("refused", stream=True), key))
    return read_statuses(client)


BEHAVIOURS: list[Callable[[socket.socket, str], Counter[str]]] = [
    reads,
    reads,
    asks_for_all_at_once,
    pipelines,
    hangs_up_in_the_middle,
    hangs_up_at_once,
    hangs_up_in_the_request,
    times_out,
    sees_it_break,
    gets_an_error,
]


def client_of(gateway: ExampleGateway, seed: int, calls: int) -> Counter[str]:
    chooser = random.Random(seed)
    seen: Counter[str] = Counter()
    for _ in range(calls):
        behaviour, key = chooser.choice(BEHAVIOURS), chooser.choice(list(KEYS))
        address = ("127.0.0.1", gateway.port)
        with suppress(OSError), closing(socket.create_connection(address, timeout=30)) as client:
            seen += behaviour(client, key)
    return seen


def when_quiet(gateway: ExampleGateway) -> dict[str, tuple[int, int]]:
    """The charges by the gateway's log, once nothing has been served for a while."""
    deadline_s = time.monotonic() + 120
    found, since_s = gateway.logged(), time.monotonic()
    while time.monotonic() - since_s < _QUIET_S:
        assert time.monotonic() < deadline_s, "the gateway serves clients that have left"
        time.sleep(0.1)
        now = gateway.logged()
        if now != found:
            found, since_s = now, time.monotonic()
    return found


def check(folder: Path, url: str, workers: int) -> None:
    with example_gateway(folder, url, "--workers", str(workers)) as gateway:
        with ThreadPoolExecutor(12) as pool:
            seen: Counter[str] = Counter()
            for found in pool.map(lambda seed: client_of(gateway, seed, 30), range(12)):
                seen += found
        expected = when_quiet(gateway)
        deadline_s = time.monotonic() + 20
        while gateway.all_charged() != expected and time.monotonic() < deadline_s:
            time.sleep(0.05)
        assert gateway.all_charged() == expected
        metrics = gateway.metrics(workers)
    # Requests of the project run out, so that its limit decides over those of its keys.
    assert expected[PROJECT][0] <= PROJECT_REQUESTS
    assert set(seen) <= {"200", "429", "502"}
    assert min(seen["200"], seen["502"]) > 0
    assert counted(metrics, 'outcome="admitted"') >= expected[PROJECT][0]


@pytest.mark.slow
def test_charges_of_the_example_gateway_equal_its_log_on_sqlite(tmp_path: Path) -> None:
    check(tmp_path, f"sqlite:///{tmp_path}/limits.db", workers=4)


@pytest.mark.slow
def test_charges_of_the_example_gateway_equal_its_log_on_dynamodb(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    check(tmp_path, request.getfixturevalue("table").url, workers=4)


@pytest.mark.slow
def test_the_example_gateway_charges_on_after_a_reload(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(EXAMPLE, source)
    url = f"sqlite:///{tmp_path}/limits.db"
    options = ("--reload", "--reload-dir", str(source))
    with example_gateway(tmp_path, url, *options, source=source) as gateway:
        assert gateway.post(chat("plain"))[0].status == 200
        (source / "app.py").touch()
        deadline_s = time.monotonic() + 60
        while (tmp_path / "server.log").read_text().count("Application startup complete") < 2:
            assert time.monotonic() < deadline_s, "the server does not reload"
            time.sleep(0.1)
        assert gateway.post(chat("plain", stream=True))[0].status == 200
        assert gateway.charged("acme-search-key-1") == (2, 2 * USED)
