"""Cancellations at every await of calls with a receipt: what is owed is paid, and keys are free."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest

from tests.support.servers.chaos import Act, ChaosProxy, DropAnswer, Last, Reset
from tests.support.servers.tables import OwnTable
from tests.support.suspensions import cancelled_at
from zae_limiter import LeaseExpiredError, Limit, RateLimiter, Repository
from zae_limiter.backends.dynamodb.url import dynamodb_url

LIMIT = Limit.per_day("rpm", 100_000)
_MOST_SUSPENSIONS = 200
LINES: dict[str, list[Act]] = {
    "every call connects anew": [Last()],
    "answers are lost": [DropAnswer(), Last(), Last()],
    "requests are lost": [Reset(), Last(), Last()],
}


@pytest.fixture
async def limiter(proxy: ChaosProxy, table: OwnTable) -> AsyncIterator[RateLimiter]:
    url = dynamodb_url(table.name, table.server.region, proxy.url)
    async with await Repository.open(url=url, breaker_failures=0) as repository:
        await repository.set_system_defaults([LIMIT])
        await repository.create_entity("org")
        await repository.create_entity("key", parent_id="org", cascade=True)
        limiter = RateLimiter(repository)
        async with limiter.acquire("key", "gpt-4", {"rpm": 0}):
            pass
        yield limiter


async def used(limiter: RateLimiter) -> list[int]:
    """Return what key and organisation have used."""
    found = []
    for entity_id in ("key", "org"):
        states = await limiter.repository.get_buckets(entity_id, "gpt-4")
        (state,) = [state for state in states if state.limit_name == "rpm"]
        found.append((state.total_consumed_milli or 0) // 1000)
    return found


async def strike_at_every_await(
    proxy: ChaosProxy, acts: list[Act], often: bool, work: Callable[[int], Awaitable[None]]
) -> int:
    """Cancel work at its first suspension, at its second, and so on until it is not reached."""
    for number in range(1, _MOST_SUSPENSIONS):
        proxy.use(itertools.cycle(acts))

        async def one(number: int = number) -> None:
            await work(number)

        begun = cancelled_at(one(), number, often=often)
        await asyncio.wait([begun.task])
        proxy.use(())
        if not begun.was_struck:
            return number
    raise AssertionError("it never ended")


@pytest.mark.parametrize("often", [False, True], ids=["once", "again and again"])
@pytest.mark.parametrize("line", LINES)
async def test_a_reservation_that_is_cancelled_is_given_back_and_its_key_is_free(
    limiter: RateLimiter, proxy: ChaosProxy, line: str, often: bool
) -> None:
    async def reserve(number: int) -> None:
        lease = await limiter.reserve("key", "gpt-4", {"rpm": 10}, idempotency_key=f"k-{number}")
        with suppress(LeaseExpiredError):
            await lease.release()

    last = await strike_at_every_await(proxy, LINES[line], often, reserve)
    assert last > 3
    assert await used(limiter) == [0, 0]
    for number in range(1, last):
        lease = await limiter.reserve("key", "gpt-4", {"rpm": 10}, idempotency_key=f"k-{number}")
        assert not lease.is_repeat
        await lease.release()


@pytest.mark.parametrize("often", [False, True], ids=["once", "again and again"])
@pytest.mark.parametrize("line", LINES)
async def test_a_commit_that_is_cancelled_is_made_once(
    limiter: RateLimiter, proxy: ChaosProxy, line: str, often: bool
) -> None:
    total = 0
    for number in range(1, _MOST_SUSPENSIONS):
        lease = await limiter.reserve("key", "gpt-4", {"rpm": 10}, lease_ttl=60)
        proxy.use(itertools.cycle(LINES[line]))
        begun = cancelled_at(lease.commit(rpm=3), number, often=often)
        await asyncio.wait([begun.task])
        proxy.use(())
        total += 3
        with pytest.raises(LeaseExpiredError):
            await lease.commit(rpm=4)
        assert await used(limiter) == [total, total]
        if not begun.was_struck:
            return
    raise AssertionError("it never ended")
