"""Stores that do not answer: no call takes longer than its timeout, or than the total timeout."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import get_args

import pytest

from tests.support.drivers import Awaited, Driver, limiter_on, open_repository
from tests.support.servers.chaos import (
    INTERNAL_ERROR,
    THROTTLED,
    Act,
    ChaosProxy,
    Delay,
    Drip,
    Hold,
    Reset,
)
from tests.support.servers.tables import OwnTable
from zae_limiter import Limit, OnUnavailable, RateLimiter
from zae_limiter.backends.dynamodb.url import dynamodb_url
from zae_limiter.core.exceptions import StorageUnavailable

TIMEOUT_S = 0.3
# What a call may take on a busy machine. Without deadlines these took 13 to 87 seconds.
GENEROUS_S = 3.0
SILENT = threading.Event()
FAULTS: dict[str, Act] = {
    "silent": Hold(SILENT),
    "dripping": Drip(0.05),
    "resetting": Reset(),
    "failing": INTERNAL_ERROR,
    "throttling": THROTTLED,
}


@pytest.fixture(params=get_args(Driver))
def facade(request: pytest.FixtureRequest) -> Driver:
    chosen: Driver = request.param
    return chosen


@pytest.fixture
async def limiter(facade: Driver, proxy: ChaosProxy, table: OwnTable) -> AsyncIterator[RateLimiter]:
    url = dynamodb_url(table.name, table.server.region, proxy.url)
    async with await open_repository(facade, url=url) as repository:
        await repository.set_system_defaults([Limit.per_day("rpm", 1000)])
        yield limiter_on(repository)


@contextmanager
def broken(proxy: ChaosProxy, act: Act) -> Iterator[None]:
    SILENT.clear()
    proxy.use(itertools.repeat(act))
    try:
        yield
    finally:
        proxy.use(())
        SILENT.set()


async def timed(limiter: RateLimiter, timeout: float | None) -> tuple[bool, float]:
    """Acquire: whether it passed uncharged, and after how long."""
    began_s = time.monotonic()
    async with limiter.acquire(
        "key", "gpt-4", {"rpm": 1}, on_unavailable=OnUnavailable.ALLOW, timeout=timeout
    ) as lease:
        return lease.degraded, time.monotonic() - began_s


async def in_parallel(limiter: RateLimiter, calls: int) -> list[tuple[bool, float]]:
    if not isinstance(limiter, Awaited):
        return await asyncio.gather(*(timed(limiter, TIMEOUT_S) for _ in range(calls)))
    return await asyncio.gather(*(asyncio.to_thread(_in_thread, limiter) for _ in range(calls)))


def _in_thread(limiter: RateLimiter) -> tuple[bool, float]:
    return asyncio.run(timed(limiter, TIMEOUT_S))


@pytest.mark.parametrize("fault", FAULTS)
async def test_no_call_takes_longer_than_its_timeout(
    fault: str, limiter: RateLimiter, proxy: ChaosProxy
) -> None:
    await timed(limiter, None)
    with broken(proxy, FAULTS[fault]):
        found = [await timed(limiter, TIMEOUT_S)]
        found += await in_parallel(limiter, 6)
        assert not await limiter.is_available(timeout=0.2)
    assert [degraded for degraded, _ in found] == [True] * 7
    assert max(seconds for _, seconds in found) < GENEROUS_S


async def test_without_a_timeout_the_total_timeout_of_the_store_counts(
    facade: Driver, proxy: ChaosProxy, table: OwnTable
) -> None:
    url = dynamodb_url(table.name, table.server.region, proxy.url)
    async with await open_repository(facade, url=url, total_timeout=TIMEOUT_S) as repository:
        await repository.set_system_defaults([Limit.per_day("rpm", 1000)])
        limiter = limiter_on(repository)
        await timed(limiter, None)
        with broken(proxy, FAULTS["dripping"]):
            degraded, seconds = await timed(limiter, None)
        assert degraded
        assert seconds < GENEROUS_S


async def test_a_question_that_is_asked_again_keeps_to_the_total_timeout(
    facade: Driver, proxy: ChaosProxy, table: OwnTable
) -> None:
    url = dynamodb_url(table.name, table.server.region, proxy.url)
    async with await open_repository(facade, url=url, total_timeout=1.1) as repository:
        with broken(proxy, FAULTS["silent"]):
            began_s = time.monotonic()
            with pytest.raises(StorageUnavailable):
                await repository.get_entity("key")
            # Each try had a total timeout of its own: 1.8 s for two.
            assert time.monotonic() - began_s < 1.65


async def test_a_question_of_several_reads_keeps_to_the_total_timeout(
    facade: Driver, proxy: ChaosProxy, table: OwnTable
) -> None:
    """Each read is answered in time, all of them together are not."""
    url = dynamodb_url(table.name, table.server.region, proxy.url)
    async with await open_repository(facade, url=url, total_timeout=0.5) as repository:
        limiter = limiter_on(repository, default_limits=[Limit.per_day("rpm", 1000)])
        proxy.use(itertools.repeat(Delay(0.3)))
        with pytest.raises(StorageUnavailable):
            await limiter.available("key", "gpt-4")
        with pytest.raises(StorageUnavailable):
            await limiter.create_entity("child", parent_id="key")
        proxy.use(())


@pytest.mark.parametrize("fault", ["silent", "dripping", "resetting", "failing"])
async def test_a_breaker_opens_and_closes_again_with_the_store(
    fault: str, limiter: RateLimiter, proxy: ChaosProxy, caplog: pytest.LogCaptureFixture
) -> None:
    await timed(limiter, None)
    repository = limiter.repository
    with broken(proxy, FAULTS[fault]):
        for _ in range(8):
            await timed(limiter, TIMEOUT_S)
        assert repository.get_cache_stats().breaker == "open"
        heard = len(proxy.requests)
        for _ in range(50):
            assert (await timed(limiter, TIMEOUT_S))[0]
        assert len(proxy.requests) - heard < 10, "refused calls are not sent"
    await asyncio.sleep(0.5)
    assert await timed(limiter, GENEROUS_S) != (True, 0)
    assert repository.get_cache_stats().breaker == "closed"
    assert not (await timed(limiter, None))[0]
    assert caplog.text.count("the breaker is open") == 1
    assert caplog.text.count("the breaker is closed") == 1


async def test_throttling_opens_no_breaker(limiter: RateLimiter, proxy: ChaosProxy) -> None:
    await timed(limiter, None)
    with broken(proxy, THROTTLED):
        for _ in range(7):
            await timed(limiter, 0.1)
    assert limiter.repository.get_cache_stats().breaker == "closed"
    assert not (await timed(limiter, None))[0]


async def test_calls_that_had_no_time_open_no_breaker(
    limiter: RateLimiter, proxy: ChaosProxy
) -> None:
    await timed(limiter, None)
    with broken(proxy, FAULTS["silent"]):
        for _ in range(7):
            await timed(limiter, 0.01)
    assert limiter.repository.get_cache_stats().breaker == "closed"


@pytest.mark.parametrize("fault", ["silent", "dripping"])
async def test_no_call_through_aiobotocore_takes_longer_than_its_timeout(
    fault: str, proxy: ChaosProxy, table: OwnTable
) -> None:
    url = dynamodb_url(table.name, table.server.region, proxy.url)
    async with await open_repository("asyncio", url=url, transport="botocore") as repository:
        await repository.set_system_defaults([Limit.per_day("rpm", 1000)])
        limiter = limiter_on(repository)
        await timed(limiter, None)
        with broken(proxy, FAULTS[fault]):
            found = [await timed(limiter, TIMEOUT_S), *await in_parallel(limiter, 3)]
        assert [degraded for degraded, _ in found] == [True] * 4
        assert max(seconds for _, seconds in found) < GENEROUS_S
        assert not (await timed(limiter, None))[0]
