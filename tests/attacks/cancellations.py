"""A program that cancels calls at random awaits, again and again: every refund must be exact.

    python -m tests.attacks.cancellations URL WAY ROUNDS SEED

The URL should lead to a proxy that closes connections now and then, so that what is owed has to
connect.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

import anyio
import uvloop

from tests.support.suspensions import Suspended, cancelled_at
from zae_limiter import Limit, RateLimiter, Repository

CAPACITY = 1000
_MOST_AWAITS = 14
_KEYS = 20


async def block(limiter: RateLimiter, key: str, *, fails: bool) -> None:
    """A block that fails, or lasts until it is cancelled. Its charge is given back."""
    with suppress(LookupError):
        async with limiter.acquire(key, "api", {"rpd": 100}):
            await asyncio.sleep(0)
            if fails:
                raise LookupError
            await asyncio.sleep(60)


async def cancel_task(limiter: RateLimiter, key: str, rng: Random) -> None:
    """Cancel a task once, or at each await from then on."""
    at, often = rng.randint(1, _MOST_AWAITS), rng.random() < 0.5
    begun = cancelled_at(block(limiter, key, fails=rng.random() < 0.5), at, often=often)
    while not (await asyncio.wait([begun.task], timeout=0.2))[0]:
        begun.task.cancel()


async def cancel_scope(limiter: RateLimiter, key: str, rng: Random) -> None:
    """Cancel a scope of anyio, which cancels its task again in each turn of the event loop."""
    scope = anyio.CancelScope(deadline=anyio.current_time() + 0.2)

    async def scoped() -> None:
        with scope:
            await block(limiter, key, fails=rng.random() < 0.5)

    begun = Suspended(scoped(), rng.randint(1, _MOST_AWAITS), scope.cancel, often=False)
    await begun.task


async def fail_group(limiter: RateLimiter, key: str, rng: Random) -> None:
    """Let a task group fail while its task is charging, working or refunding."""
    with suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(block(limiter, key, fails=rng.random() < 0.5))
            await asyncio.sleep(rng.random() * 0.02)
            raise ArithmeticError


_Way = Callable[[RateLimiter, str, Random], Awaitable[None]]
WAYS: dict[str, _Way] = {
    "asyncio": cancel_task,
    "uvloop": cancel_task,
    "anyio": cancel_scope,
    "taskgroup": fail_group,
}


async def attack(url: str, way: str, rounds: int, seed: int) -> int:
    """Cancel so many calls. Returns the tokens that were lost or won by that."""
    rng = Random(seed)
    async with await Repository.open(url=url) as repository:
        limiter = RateLimiter(repository)
        await repository.set_system_defaults([Limit.per_day("rpd", CAPACITY)])
        keys = [f"{way}-{seed}-{number}" for number in range(_KEYS)]
        for _ in range(rounds):
            await WAYS[way](limiter, rng.choice(keys), rng)
        balances = [(await limiter.available(key, "api"))["rpd"] for key in keys]
    return sum(abs(CAPACITY - left) for left in balances)


def main(url: str, way: str, rounds: str, seed: str) -> None:
    factory = uvloop.new_event_loop if way == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        print(runner.run(attack(url, way, int(rounds), int(seed))))


if __name__ == "__main__":
    main(*sys.argv[1:])
