"""Cancellations at every await, while connections have to be made anew: what is owed is paid, and
followers do not notice that their leader was cancelled."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import anyio
import pytest
import uvloop

from tests.support.servers.chaos import Act, ChaosProxy, DropAnswer, Last, Pass, Reset
from tests.support.servers.tables import OwnTable
from tests.support.suspensions import Suspended, cancelled_at
from zae_limiter import Limit, OnUnavailable, RateLimiter, Repository
from zae_limiter.backends.dynamodb.url import dynamodb_url

LIMIT = Limit.per_day("rpm", 1000)
_MOST_SUSPENSIONS = 200


@pytest.fixture
async def limiter(proxy: ChaosProxy, table: OwnTable) -> AsyncIterator[RateLimiter]:
    """A limiter whose every call has to connect."""
    url = dynamodb_url(table.name, table.server.region, proxy.url)
    async with await Repository.open(url=url) as repository:
        await repository.set_system_defaults([LIMIT])
        await repository.create_entity("org")
        proxy.use(itertools.repeat(Last()))
        yield RateLimiter(repository)


async def left(limiter: RateLimiter, entity_id: str) -> int:
    states = await limiter.repository.get_buckets(entity_id, "gpt-4")
    return sum(state.tokens_milli for state in states if state.limit_name == "rpm") // 1000


async def fail(limiter: RateLimiter, entity_id: str) -> None:
    """A block that fails, so that its charge is given back."""
    with suppress(LookupError):
        async with limiter.acquire(entity_id, "gpt-4", {"rpm": 100}):
            raise LookupError


async def correct(limiter: RateLimiter, entity_id: str, entered: list[int]) -> None:
    """A block that succeeds, and corrects its charge."""
    async with limiter.acquire(entity_id, "gpt-4", {"rpm": 100}) as lease:
        entered.append(1)
        await lease.adjust(rpm=-60)


async def prepare(limiter: RateLimiter, entity_id: str, levels: int = 1) -> None:
    if levels == 2:
        await limiter.create_entity(entity_id, parent_id="org", cascade=True)
    async with limiter.acquire(entity_id, "gpt-4", {"rpm": 0}):
        pass


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("often", [False, True], ids=["once", "at every later await"])
async def test_a_failed_block_is_refunded_exactly_whenever_its_task_is_cancelled(
    limiter: RateLimiter, often: bool, levels: int
) -> None:
    for at in range(1, _MOST_SUSPENSIONS):
        await prepare(limiter, f"key-{at}", levels)
        begun = cancelled_at(fail(limiter, f"key-{at}"), at, often=often)
        await asyncio.wait([begun.task])
        assert await left(limiter, f"key-{at}") == 1000, at
        assert levels == 1 or await left(limiter, "org") == 1000, at
        if not begun.was_struck:
            break
    assert at > 1


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("often", [False, True], ids=["once", "at every later await"])
async def test_corrections_are_written_exactly_whenever_the_task_is_cancelled(
    limiter: RateLimiter, often: bool, levels: int
) -> None:
    spent = 0
    for at in range(1, _MOST_SUSPENSIONS):
        entered: list[int] = []
        await prepare(limiter, f"key-{at}", levels)
        begun = cancelled_at(correct(limiter, f"key-{at}", entered), at, often=often)
        await asyncio.wait([begun.task])
        spent += 40 * len(entered)
        assert await left(limiter, f"key-{at}") == 1000 - 40 * len(entered), at
        assert levels == 1 or await left(limiter, "org") == 1000 - spent, at
        if not begun.was_struck:
            break
    assert spent


async def test_a_refund_outlives_a_cancel_scope_of_anyio(limiter: RateLimiter) -> None:
    """A cancel scope cancels its task again in each turn of the event loop."""
    for at in range(1, _MOST_SUSPENSIONS):
        await prepare(limiter, f"key-{at}")
        scope = anyio.CancelScope()

        async def scoped(scope: anyio.CancelScope = scope, entity_id: str = f"key-{at}") -> None:
            with scope:
                await fail(limiter, entity_id)

        begun = Suspended(scoped(), at, scope.cancel, often=False)
        await asyncio.wait([begun.task])
        assert begun.task.exception() is None
        assert await left(limiter, f"key-{at}") == 1000, at
        if not begun.was_struck:
            break
    assert at > 1


async def test_a_refund_outlives_the_failure_of_its_task_group(limiter: RateLimiter) -> None:
    for delay_ms in range(8):
        await prepare(limiter, f"key-{delay_ms}")
        with suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(fail(limiter, f"key-{delay_ms}"))
                await asyncio.sleep(delay_ms / 1000)
                raise ArithmeticError
        assert await left(limiter, f"key-{delay_ms}") == 1000


async def test_followers_do_not_notice_that_their_leader_was_cancelled(
    limiter: RateLimiter,
) -> None:
    async def take(entity_id: str) -> bool:
        allow = OnUnavailable.ALLOW
        async with limiter.acquire(entity_id, "gpt-4", {"rpm": 1}, on_unavailable=allow) as lease:
            return lease.degraded

    for at in range(1, _MOST_SUSPENSIONS):
        entity_id = f"lone-{at}"
        await take(entity_id)
        first = asyncio.ensure_future(take(entity_id))
        leader = cancelled_at(take(entity_id), at, often=True)
        others: list[Any] = [asyncio.ensure_future(take(entity_id)) for _ in range(6)]
        await asyncio.wait([first, leader.task, *others])
        assert not any(task.result() for task in (first, *others)), at
        taken = 8 + (not leader.task.cancelled())
        assert await left(limiter, entity_id) == 1000 - taken, at
        if not leader.was_struck:
            break
    assert at > 1


@pytest.mark.slow
def test_refunds_are_exact_on_uvloop(proxy: ChaosProxy, table: OwnTable) -> None:
    url = dynamodb_url(table.name, table.server.region, proxy.url)

    async def cancel_everywhere() -> None:
        async with await Repository.open(url=url) as repository:
            await repository.set_system_defaults([LIMIT])
            proxy.use(itertools.repeat(Last()))
            limiter = RateLimiter(repository)
            for at in range(1, _MOST_SUSPENSIONS):
                await prepare(limiter, f"key-{at}")
                begun = cancelled_at(fail(limiter, f"key-{at}"), at, often=True)
                await asyncio.wait([begun.task])
                assert await left(limiter, f"key-{at}") == 1000, at
                if not begun.was_struck:
                    return

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(cancel_everywhere())


@pytest.mark.parametrize("act", [Pass(), DropAnswer(), Reset()], ids=lambda act: type(act).__name__)
async def test_a_cancellation_right_before_the_answer_ends_the_call(
    table: OwnTable, act: Act
) -> None:
    """The loop reads answer or reset in the turn after the one that cancels the task."""
    loop = asyncio.get_running_loop()
    with ChaosProxy(table.server.url) as proxy:
        url = dynamodb_url(table.name, table.server.region, proxy.url)
        async with RateLimiter(repository=await Repository.open(url=url)) as limiter:
            await limiter.set_system_defaults([Limit.per_day("rpd", 1000)])
            async with limiter.acquire("key-1", "gpt-4", {"rpd": 500}):
                pass
            proxy.use([act])

            async def work() -> None:
                async with limiter.acquire("key-1", "gpt-4", {"rpd": 10}):
                    await asyncio.sleep(5)

            task = asyncio.create_task(work())
            await asyncio.sleep(0)

            def cancel_when_it_has_come() -> None:
                time.sleep(0.3)
                loop.call_soon(lambda: loop.call_soon(task.cancel))

            loop.call_soon(cancel_when_it_has_come)
            done, _ = await asyncio.wait([task], timeout=30)
            assert done
            assert task.cancelled()
            assert await limiter.available("key-1", "gpt-4") == {"rpd": 500}
