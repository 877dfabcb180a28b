"""Only an outage is an outage: a client that is wrongly configured is told so, also with `allow`;
answers that make no sense are an outage, and passwords are in no message."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import AsyncIterator
from typing import get_args

import pytest

from tests.support.drivers import Driver, limiter_on, open_repository
from tests.support.servers.chaos import Act, Answer, ChaosProxy, service_error
from tests.support.servers.tables import OwnTable
from zae_limiter import Limit, OnUnavailable, RateLimiter, StoreConfigurationError
from zae_limiter.backends.dynamodb.url import dynamodb_url
from zae_limiter.backends.dynamodb.wire.endpoint import parse_endpoint
from zae_limiter.backends.dynamodb.wire.errors import raise_ours, unsent
from zae_limiter.core.exceptions import StorageUnavailable, ValidationError

DEEP = b'{"Attributes":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.fixture(params=get_args(Driver))
def facade(request: pytest.FixtureRequest) -> Driver:
    chosen: Driver = request.param
    return chosen


@pytest.fixture
async def limiter(facade: Driver, proxy: ChaosProxy, table: OwnTable) -> AsyncIterator[RateLimiter]:
    url = dynamodb_url(table.name, table.server.region, proxy.url)
    async with await open_repository(facade, url=url, breaker_failures=0) as repository:
        await repository.set_system_defaults([Limit.per_day("rpm", 1000)])
        made = limiter_on(repository, on_unavailable=OnUnavailable.ALLOW)
        async with made.acquire("key", "gpt-4", {"rpm": 1}):
            pass
        yield made


@pytest.mark.parametrize(
    "act",
    [
        service_error(400, "UnrecognizedClientException"),
        service_error(400, "AccessDeniedException"),
        service_error(400, "ResourceNotFoundException"),
        Answer(403, b"<html>blocked by policy</html>"),
    ],
    ids=["unknown key", "access denied", "no table", "refusing proxy"],
)
async def test_a_wrong_configuration_is_raised_though_outages_are_allowed(
    act: Act, limiter: RateLimiter, proxy: ChaosProxy
) -> None:
    proxy.use(itertools.repeat(act))
    with pytest.raises(StoreConfigurationError) as raised:
        async with limiter.acquire("key", "gpt-4", {"rpm": 1}):
            pass
    if isinstance(act, Answer) and act.status == 403:
        assert "credentials" not in str(raised.value)


@pytest.mark.parametrize(
    "body",
    [b"{}", b"null", b"[]", b"5", b'{"Attributes":5}', b'{"Attributes":null}', DEEP],
    ids=["empty", "null", "list", "number", "wrong type", "null inside", "deep"],
)
async def test_an_answer_that_makes_no_sense_is_an_outage(
    body: bytes, limiter: RateLimiter, proxy: ChaosProxy
) -> None:
    proxy.use(itertools.repeat(Answer(200, body)))
    async with limiter.acquire("key", "gpt-4", {"rpm": 1}, timeout=0.5) as lease:
        assert lease.degraded


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@host",
        "http://user:sec/secret@host:80",
        "http://user:secret@host:bad",
        "user:secret@host",
        "http://user:secret@[host",
    ],
)
def test_a_password_in_an_endpoint_url_is_in_no_message(url: str) -> None:
    with pytest.raises(ValidationError) as raised:
        parse_endpoint(url)
    assert "secret" not in "".join(traceback.format_exception(raised.value))
    assert "sec" not in f"{raised.value} {raised.value.value}"


def test_a_password_in_a_library_s_message_is_not_passed_on() -> None:
    try:
        raise ConnectionError('Failed to connect to proxy URL: "http://user:secret@proxy:3128"')
    except ConnectionError as found:
        error = found
    with pytest.raises(StorageUnavailable) as raised:
        raise_ours(error, ((OSError, unsent),), "DynamoDB")
    assert "secret" not in "".join(traceback.format_exception(raised.value))
    assert "secret" not in str(raised.value.cause)
    assert "proxy:3128" in str(raised.value)
