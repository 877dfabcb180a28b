from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.credentials import ReadOnlyCredentials

from tests.support.servers.chaos import Answer, ChaosProxy, Request
from tests.support.servers.processes import free_port
from tests.support.wire_drivers import Driver
from zae_limiter.backends.dynamodb.wire.client import DynamoClient
from zae_limiter.backends.dynamodb.wire.connect import open_client
from zae_limiter.backends.dynamodb.wire.credentials import Access, Grant
from zae_limiter.backends.dynamodb.wire.endpoint import parse_endpoint
from zae_limiter.core.exceptions import StorageUnavailable, ValidationError

_NOBODY = f"http://127.0.0.1:{free_port()}"


def _set_keys(monkeypatch: pytest.MonkeyPatch, token: str | None = None) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    if token:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)


def _config(text: str) -> None:
    Path(os.environ["AWS_CONFIG_FILE"]).write_text(text)


def _obtain(access: Access) -> Grant:
    grant = access.obtain()
    assert access.ready() == grant
    return grant


def test_keys_of_the_environment_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    _set_keys(monkeypatch, "token")
    access = Access("us-east-1", _NOBODY)
    assert access.ready() is None
    assert _obtain(access).credentials == ("AKIAENV", "secret", "token")


def test_keys_region_and_endpoint_of_a_profile_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    _config(
        "[profile team]\naws_access_key_id = AKIATEAM\naws_secret_access_key = hidden\n"
        "region = eu-west-3\nendpoint_url = http://team.example:8000\n"
    )
    monkeypatch.setenv("AWS_PROFILE", "team")
    grant = _obtain(Access())
    assert grant.credentials == ("AKIATEAM", "hidden", None)
    assert grant.region == "eu-west-3"
    assert grant.endpoint.origin == "http://team.example:8000"


def test_an_unknown_profile_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(ValidationError, match="nobody"):
        Access("us-east-1", _NOBODY).obtain()


@pytest.mark.parametrize(
    ("environment", "given", "region"),
    [
        ({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-2"}, "eu-west-3", "eu-west-3"),
        ({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-2"}, None, "eu-west-1"),
        ({"AWS_DEFAULT_REGION": "eu-west-2"}, None, "eu-west-2"),
    ],
)
def test_the_region_nearest_to_the_caller_counts(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], given: str | None, region: str
) -> None:
    _set_keys(monkeypatch)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert _obtain(Access(given, _NOBODY)).region == region


def test_a_missing_region_says_how_to_set_one(monkeypatch: pytest.MonkeyPatch) -> None:
    _set_keys(monkeypatch)
    with pytest.raises(ValidationError, match=r"region=.*AWS_REGION"):
        Access(None, _NOBODY).obtain()


@pytest.mark.parametrize(
    ("environment", "given", "origin"),
    [
        ({}, None, "https://dynamodb.eu-west-1.amazonaws.com"),
        ({"AWS_ENDPOINT_URL": "http://all:1"}, None, "http://all:1"),
        (
            {"AWS_ENDPOINT_URL": "http://all:1", "AWS_ENDPOINT_URL_DYNAMODB": "http://db:2"},
            None,
            "http://db:2",
        ),
        ({"AWS_ENDPOINT_URL_DYNAMODB": "http://db:2"}, "http://given:3", "http://given:3"),
        (
            {"AWS_USE_FIPS_ENDPOINT": "true"},
            None,
            "https://dynamodb-fips.eu-west-1.amazonaws.com",
        ),
    ],
)
def test_the_endpoint_nearest_to_the_caller_counts(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], given: str | None, origin: str
) -> None:
    _set_keys(monkeypatch)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert _obtain(Access("eu-west-1", given)).endpoint.origin == origin


@pytest.mark.parametrize("transport", ["wire", "botocore"])
def test_missing_credentials_say_how_to_set_them(driver: Driver, transport: str) -> None:
    client = _client(driver, _NOBODY, transport)
    with pytest.raises(StorageUnavailable, match="AWS_ACCESS_KEY_ID") as raised:
        driver.run(client.call("ListTables", {}))
    assert (raised.value.retryable, raised.value.ambiguous) == (False, False)
    driver.run(client.close())


@pytest.mark.parametrize("transport", ["wire", "botocore"])
def test_half_a_key_pair_is_reported(
    driver: Driver, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENV")
    client = _client(driver, _NOBODY, transport)
    with pytest.raises(StorageUnavailable, match="AWS_SECRET_ACCESS_KEY") as raised:
        driver.run(client.call("ListTables", {}))
    assert (raised.value.retryable, raised.value.ambiguous) == (False, False)
    driver.run(client.close())


def _client(driver: Driver, url: str, transport: str = "wire") -> DynamoClient:
    return open_client(
        driver.io,
        blocking=driver.blocking,
        region="us-east-1",
        endpoint_url=url,
        transport=transport,
    )


def _program(folder: Path, lifetime: timedelta, seconds: float = 0) -> Path:
    """A credential process. Each run leaves a line in `runs` and has a key of its own."""
    expires = (datetime.now(UTC) + lifetime).isoformat()
    program = folder / "keys.py"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, time\n"
        f"time.sleep({seconds})\n"
        f"with open({str(folder / 'runs')!r}, 'a+') as runs:\n"
        "    runs.write('run\\n'); runs.flush(); runs.seek(0); n = len(runs.readlines())\n"
        "print(json.dumps({'Version': 1, 'AccessKeyId': f'AKIARUN{n}',"
        f" 'SecretAccessKey': 's', 'SessionToken': f'token{{n}}', 'Expiration': {expires!r}}}))\n"
    )
    program.chmod(stat.S_IRWXU)
    _config(f"[default]\ncredential_process = {program}\n")
    return folder / "runs"


def _access_key(request: Request) -> str:
    return request.headers["authorization"].partition("Credential=")[2].partition("/")[0]


_EMPTY = Answer(200, b"{}")


def test_credentials_that_last_are_asked_for_once_however_many_race(
    driver: Driver, tmp_path: Path
) -> None:
    runs = _program(tmp_path, timedelta(hours=1), seconds=0.2)
    with ChaosProxy(_NOBODY, [_EMPTY] * 20) as proxy:
        client = _client(driver, proxy.url)
        _race(driver, client, 20)
        driver.run(client.close())
    assert len(proxy.requests) == 20
    assert runs.read_text() == "run\n"
    assert {_access_key(request) for request, _ in proxy.requests} == {"AKIARUN1"}
    assert {request.headers["x-amz-security-token"] for request, _ in proxy.requests} == {"token1"}


def _race(driver: Driver, client: DynamoClient, calls: int) -> None:
    async def tasks() -> None:
        await asyncio.gather(*(client.call("ListTables", {}) for _ in range(calls)))

    if not driver.blocking:
        driver.run(tasks())
        return
    threads = [
        threading.Thread(target=lambda: driver.run(client.call("ListTables", {})))
        for _ in range(calls)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_credentials_about_to_expire_are_renewed(driver: Driver, tmp_path: Path) -> None:
    _program(tmp_path, timedelta(seconds=15))
    with ChaosProxy(_NOBODY, [_EMPTY] * 3) as proxy:
        client = _client(driver, proxy.url)
        for _ in range(3):
            driver.run(client.call("ListTables", {}))
        driver.run(client.close())
    keys = [_access_key(request) for request, _ in proxy.requests]
    tokens = [request.headers["x-amz-security-token"] for request, _ in proxy.requests]
    assert len(set(keys)) == 3
    assert [token.removeprefix("token") for token in tokens] == [
        key.removeprefix("AKIARUN") for key in keys
    ]


async def test_renewal_does_not_stop_the_event_loop(tmp_path: Path) -> None:
    from zae_limiter.runtime.asyncio_driver import AsyncioIo

    _program(tmp_path, timedelta(seconds=15), seconds=0.3)
    io = AsyncioIo()
    with ChaosProxy(_NOBODY, [_EMPTY] * 2) as proxy:
        client = open_client(io, blocking=False, region="us-east-1", endpoint_url=proxy.url)
        for _ in range(2):
            call = asyncio.ensure_future(client.call("ListTables", {}))
            beats = 0
            while not call.done():
                await asyncio.sleep(0.01)
                beats += 1
            await call
            # One beat would do if the loop had stood still until the end.
            assert beats > 3
        await client.close()
    await io.close()


def test_a_renewal_that_fails_is_reported(driver: Driver, tmp_path: Path) -> None:
    _config(f"[default]\ncredential_process = {sys.executable} -c 'raise SystemExit(3)'\n")
    client = _client(driver, _NOBODY)
    with pytest.raises(StorageUnavailable, match="credentials cannot be had") as raised:
        driver.run(client.call("ListTables", {}))
    assert (raised.value.retryable, raised.value.ambiguous) == (False, False)


def test_expired_credentials_are_reported_with_advice(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    _set_keys(monkeypatch, "token")
    expired = {"__type": "com.amazon.coral.service#ExpiredTokenException", "message": "over"}
    with ChaosProxy(_NOBODY, [Answer(400, json.dumps(expired).encode())]) as proxy:
        client = _client(driver, proxy.url)
        with pytest.raises(StorageUnavailable, match="expired: sign in again") as raised:
            driver.run(client.call("ListTables", {}))
        driver.run(client.close())
    assert (raised.value.retryable, raised.value.ambiguous) == (False, False)
    assert len(proxy.requests) == 1


class ShortLived:
    """Credentials of five minutes, as botocore shows them: they always want to be renewed."""

    def __init__(self) -> None:
        self.left_s = 300.0
        self.asked = 0
        self.may_answer = threading.Event()
        self.may_answer.set()

    def refresh_needed(self, refresh_in: float = 900) -> bool:
        return self.left_s < refresh_in

    def get_frozen_credentials(self) -> Any:
        self.asked += 1
        self.may_answer.wait(20)
        return ReadOnlyCredentials(f"key-{self.asked}", "secret", "token")


def _with(credentials: ShortLived) -> Access:
    access = Access()
    access._found = "us-east-1", parse_endpoint("http://localhost:1"), credentials
    return access


def _later(access: Access) -> None:
    """Let the second pass for which a grant is not questioned."""
    assert access._last is not None
    access._last = access._last[0], 0.0


def test_credentials_of_five_minutes_are_not_fetched_for_every_request() -> None:
    credentials = ShortLived()
    access = _with(credentials)
    assert access.ready() is None
    access.obtain()
    for _ in range(100):
        _later(access)
        assert access.ready() is not None
    assert credentials.asked <= 2


def test_a_hanging_credential_endpoint_stops_no_request_while_the_old_ones_are_good() -> None:
    credentials = ShortLived()
    access = _with(credentials)
    first = access.obtain()
    credentials.may_answer.clear()
    for _ in range(3):
        _later(access)
        assert access.ready() == first
    credentials.left_s = 5
    _later(access)
    assert access.ready() is None, "they are about to expire"
    credentials.may_answer.set()
