"""extenddb checks signatures by itself, so it is an independent judge of our signer."""

from __future__ import annotations

import time
from functools import partial

import pytest

from tests.support.servers.processes import Server
from tests.support.signing import sign
from tests.support.wire_drivers import Driver
from zae_limiter.backends.dynamodb.wire.connect import open_edge
from zae_limiter.backends.dynamodb.wire.credentials import Access
from zae_limiter.backends.dynamodb.wire.endpoint import parse_endpoint
from zae_limiter.backends.dynamodb.wire.errors import ErrorAnswer
from zae_limiter.backends.dynamodb.wire.protocol import read_answer, request_headers
from zae_limiter.backends.dynamodb.wire.request import SharedHead, SignedRequest
from zae_limiter.backends.dynamodb.wire.server_clock import ServerClock
from zae_limiter.backends.dynamodb.wire.signer import Credentials
from zae_limiter.backends.dynamodb.wire.transport import SignedTransport
from zae_limiter.core.exceptions import StorageUnavailable

from .conftest import Connect, act_as_caller_of

_BODY = b'{"Limit":10}'


def _signed(server: Server, secret_key: str | None = None) -> dict[str, str]:
    assert server.access_key
    assert server.secret_key
    credentials = Credentials(server.access_key, secret_key or server.secret_key)
    host = server.url.removeprefix("http://")
    own = request_headers("ListTables")
    return sign(credentials, server.region, host, "/", own, _BODY, time.time())


def _judged(
    driver: Driver,
    server: Server,
    headers: dict[str, str],
    body: bytes = _BODY,
) -> ErrorAnswer | None:
    """Return the judge's objection, if there is any."""
    edge = open_edge(parse_endpoint(server.url), blocking=driver.blocking)

    async def ask() -> ErrorAnswer | None:
        found = read_answer(
            "ListTables", await edge.send(SignedRequest(SharedHead("/", headers), "", body))
        )
        await edge.close()
        return found if isinstance(found, ErrorAnswer) else None

    judgement: ErrorAnswer | None = driver.run(ask())
    return judgement


def test_the_judge_accepts_what_we_sign(extenddb: Server, driver: Driver) -> None:
    assert _judged(driver, extenddb, _signed(extenddb)) is None


@pytest.mark.parametrize("header", ["x-amz-date", "x-amz-target", "content-type", "authorization"])
def test_the_judge_refuses_a_changed_header(extenddb: Server, driver: Driver, header: str) -> None:
    changes = {
        "x-amz-date": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() + 1)),
        "x-amz-target": "DynamoDB_20120810.DescribeLimits",
        "content-type": "application/x-amz-json-1.0; charset=utf-8",
    }
    headers = _signed(extenddb)
    digit = "1" if headers["authorization"].endswith("0") else "0"
    headers[header] = changes.get(header, headers[header][:-1] + digit)
    refusal = _judged(driver, extenddb, headers)
    assert refusal is not None
    assert refusal.code == "InvalidSignatureException"


def test_the_judge_refuses_a_changed_body(extenddb: Server, driver: Driver) -> None:
    refusal = _judged(driver, extenddb, _signed(extenddb), _BODY.replace(b"10", b"11"))
    assert refusal is not None
    assert refusal.code == "InvalidSignatureException"


def test_the_judge_refuses_another_secret(extenddb: Server, driver: Driver) -> None:
    refusal = _judged(driver, extenddb, _signed(extenddb, "another"))
    assert refusal is not None
    assert refusal.code == "InvalidSignatureException"


def test_a_wrong_secret_is_reported_with_advice(
    extenddb: Server, driver: Driver, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(extenddb)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with pytest.raises(StorageUnavailable, match="check secret key") as raised:
        driver.run(client.call("ListTables", {}))
    assert (raised.value.retryable, raised.value.ambiguous) == (False, False)
    assert client.meter.requests["ListTables"] == 1


def test_an_unknown_access_key_is_reported_with_advice(
    extenddb: Server, driver: Driver, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(extenddb)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIANOBODYKNOWSTHIS1")
    with pytest.raises(StorageUnavailable, match="check the access key") as raised:
        driver.run(client.call("ListTables", {}))
    assert (raised.value.retryable, raised.value.ambiguous) == (False, False)


@pytest.mark.parametrize("wrong_by_s", [-3600, 3600])
def test_a_wrong_clock_is_corrected_by_the_first_refusal(
    extenddb: Server,
    driver: Driver,
    monkeypatch: pytest.MonkeyPatch,
    wrong_by_s: int,
) -> None:
    act_as_caller_of(extenddb, monkeypatch)
    clock = ServerClock()
    transport = SignedTransport(
        driver.io,
        Access(extenddb.region, extenddb.url),
        partial(open_edge, blocking=driver.blocking),
        clock,
        now_s=lambda: time.time() + wrong_by_s,
    )
    for _ in range(2):
        assert "TableNames" in driver.run(transport.exchange("ListTables", {}))
    assert abs(clock.offset_ms + 1000 * wrong_by_s) < 3000
    driver.run(transport.close())
