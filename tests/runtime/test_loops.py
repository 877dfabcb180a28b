"""A repository serves several event loops and threads."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest

from zae_limiter import Limit, RateLimiter, Repository, SyncRepository

LIMITS = [Limit.per_day("rpm", 1_000)]


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'limits.db'}"


async def use(repository: Repository, times: int) -> int:
    limiter = RateLimiter(repository, default_limits=LIMITS)
    for _ in range(times):
        async with limiter.acquire("key", "gpt-4", {"rpm": 1}):
            await asyncio.sleep(0)
    return (await limiter.available("key", "gpt-4"))["rpm"]


def test_a_repository_works_in_one_event_loop_after_the_other(url: str) -> None:
    repository = asyncio.run(Repository.open(url=url))
    assert asyncio.run(use(repository, 10)) == 990
    assert asyncio.run(use(repository, 10)) == 980
    asyncio.run(repository.close())


def test_a_repository_works_in_several_event_loops_at_once(url: str) -> None:
    repository = asyncio.run(Repository.open(url=url))
    threads = [threading.Thread(target=lambda: asyncio.run(use(repository, 25))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()
    assert asyncio.run(use(repository, 0)) == 900
    asyncio.run(repository.close())


def test_a_refund_in_one_event_loop_wakes_a_waiter_in_another(url: str) -> None:
    repository = asyncio.run(Repository.open(url=url))
    limiter = RateLimiter(repository, default_limits=[Limit.per_day("rpm", 1)])
    served = threading.Event()

    async def wait() -> None:
        async with limiter.acquire("key", "gpt-4", {"rpm": 1}, timeout=86_400 * 2):
            served.set()

    async def hold(waiter: threading.Thread) -> None:
        async with limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
            waiter.start()
            while not repository.scope.local.wait_queues._queues:  # noqa: ASYNC110 - has no event
                await asyncio.sleep(0.001)
            await lease.release(rpm=1)

    waiter = threading.Thread(target=lambda: asyncio.run(wait()), daemon=True)
    asyncio.run(hold(waiter))
    assert served.wait(10)
    waiter.join(timeout=10)
    asyncio.run(repository.close())


async def test_a_locked_file_does_not_stop_the_event_loop(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    async with await Repository.open(url=f"sqlite:///{path}") as repository:
        await use(repository, 1)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            task = asyncio.create_task(use(repository, 1))
            ticks = 0
            while ticks < 50:
                await asyncio.sleep(0.001)
                ticks += 1
            assert not task.done()
            other.execute("ROLLBACK")
        assert await task == 998


@pytest.mark.parametrize("sleeps", range(4))
def test_refunds_in_the_queue_are_carried_out_when_the_loop_shuts_down(
    tmp_path: Path, sleeps: int
) -> None:
    """A loop that ends cancels every task once, as a server that stops does."""
    url = f"sqlite:///{tmp_path / 'limits.db'}"

    async def serve() -> None:
        repository = await Repository.open(url=url)
        limiter = RateLimiter(repository, default_limits=[Limit.per_day("rpm", 1000)])
        entered, fail = asyncio.Semaphore(0), asyncio.Event()

        async def request() -> None:
            with suppress(ZeroDivisionError):
                async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
                    entered.release()
                    await fail.wait()
                    raise ZeroDivisionError

        requests = [asyncio.ensure_future(request()) for _ in range(20)]
        for _ in requests:
            await entered.acquire()
        fail.set()
        for _ in range(sleeps):
            await asyncio.sleep(0)

    asyncio.run(serve())
    with SyncRepository.open(url=url) as repository:
        (state,) = repository.get_buckets("key-1", "gpt-4")
    assert state.total_consumed_milli == 0
