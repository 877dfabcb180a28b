"""The answer to a write is lost, and the question what became of it fails as well: it is asked
again while the call has time, and a doubt that stays is logged with its address and amount."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Sequence

import pytest

from tests.support.drivers import Driver, limiter_on, open_repository
from tests.support.servers.chaos import INTERNAL_ERROR, Act, ChaosProxy, DropAnswer, Reset
from tests.support.servers.tables import OwnTable
from tests.support.suspensions import cancelled_at
from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, Repository
from zae_limiter.backends.dynamodb.url import dynamodb_url

LIMIT = Limit.per_day("rpm", 1000)
FAULTS: dict[str, Sequence[Act]] = {
    "carried out, question reset": (DropAnswer(), Reset()),
    "carried out, question fails": (DropAnswer(), INTERNAL_ERROR),
    "carried out, answer to the question lost": (DropAnswer(), DropAnswer(), DropAnswer()),
    "never carried out, question reset": (Reset(), Reset()),
}


@pytest.fixture(params=["asyncio", pytest.param("blocking", marks=pytest.mark.slow)])
def facade(request: pytest.FixtureRequest) -> Driver:
    chosen: Driver = request.param
    return chosen


@pytest.fixture
async def limiter(facade: Driver, proxy: ChaosProxy, table: OwnTable) -> AsyncIterator[RateLimiter]:
    """A limiter with 900 tokens at its key, and a connection that is kept."""
    url = dynamodb_url(table.name, table.server.region, proxy.url)
    async with await open_repository(facade, url=url, breaker_failures=0) as repository:
        await repository.set_system_defaults([LIMIT])
        made = limiter_on(repository)
        async with made.acquire("key", "gpt-4", {"rpm": 100}):
            pass
        yield made


async def left(repository: Repository) -> int:
    return (
        sum(
            state.tokens_milli
            for state in await repository.get_buckets("key", "gpt-4")
            if state.limit_name == "rpm"
        )
        // 1000
    )


async def charge(limiter: RateLimiter) -> None:
    async with limiter.acquire("key", "gpt-4", {"rpm": 10}):
        pass


@pytest.mark.parametrize("faults", FAULTS)
async def test_a_charge_is_made_once_though_the_question_after_it_fails(
    limiter: RateLimiter, proxy: ChaosProxy, faults: str
) -> None:
    proxy.use(FAULTS[faults])
    await charge(limiter)
    assert await left(limiter.repository) == 890


@pytest.mark.parametrize("faults", FAULTS)
async def test_a_correction_is_written_once_though_the_question_after_it_fails(
    limiter: RateLimiter, proxy: ChaosProxy, faults: str
) -> None:
    async with limiter.acquire("key", "gpt-4", {"rpm": 10}) as lease:
        await lease.adjust(rpm=50)
        proxy.use(FAULTS[faults])
    assert await left(limiter.repository) == 840


@pytest.mark.parametrize("facade", ["asyncio"], indirect=True)
@pytest.mark.parametrize("faults", FAULTS)
async def test_a_cancelled_charge_is_given_back_though_the_question_after_it_fails(
    limiter: RateLimiter, proxy: ChaosProxy, faults: str
) -> None:
    proxy.use(FAULTS[faults])
    begun = cancelled_at(charge(limiter), 1, often=False)
    await asyncio.wait([begun.task])
    assert begun.task.cancelled()
    assert await left(limiter.repository) == 900


@pytest.mark.parametrize("facade", ["asyncio"], indirect=True)
@pytest.mark.parametrize("cancelled", [False, True], ids=["waited for", "cancelled"])
async def test_a_charge_that_stays_in_doubt_is_logged_with_address_and_amount(
    limiter: RateLimiter, proxy: ChaosProxy, cancelled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.use(itertools.chain([DropAnswer()], itertools.repeat(Reset())))
    with caplog.at_level(logging.WARNING, "zae_limiter"):
        if cancelled:
            await asyncio.wait([cancelled_at(charge(limiter), 1, often=False).task])
        else:
            with pytest.raises(RateLimiterUnavailable):
                await charge(limiter)
    proxy.use(())
    assert await left(limiter.repository) == 890
    logged = [text for text in caplog.messages if "unknown outcome" in text]
    assert len(logged) == 1
    assert "+10 rpm" in logged[0]
    assert "key" in logged[0]
