"""One process of several, with many tasks that all want the same bucket.

python -m tests.flows.rush URL SEED

Prints as JSON what was taken and when, and in how many writes.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time

from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository
from zae_limiter.core.composite import BucketAddress
from zae_limiter.core.writes import Granted, Outcome, Write

LIMIT = Limit.per_second("rpm", 2000, burst=1000)
TASKS = 50
_SECONDS = 1.5


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def rush(limiter: RateLimiter, rng: random.Random, taken: list[tuple[int, int, int]]) -> None:
    until_s = time.monotonic() + _SECONDS
    while time.monotonic() < until_s:
        began_ms, amount = now_ms(), rng.randint(1, 3)
        try:
            async with limiter.acquire("key", "gpt-4", {"rpm": amount}):
                taken.append((began_ms, now_ms(), amount))
        except RateLimitExceeded as refused:
            await asyncio.sleep(min(refused.retry_after_seconds, 0.02))


async def main(url: str, seed: str) -> None:
    async with await Repository.open(url=url) as repository:
        buckets, writes = repository.scope.store.buckets, 0
        write = buckets.write

        async def counted(address: BucketAddress, planned: Write) -> Outcome:
            nonlocal writes
            outcome = await write(address, planned)
            writes += isinstance(outcome, Granted)
            return outcome

        buckets.write = counted  # type: ignore[method-assign,assignment]
        limiter = RateLimiter(repository, default_limits=[LIMIT])
        taken: list[tuple[int, int, int]] = []
        rngs = [random.Random(f"{seed}/{number}") for number in range(TASKS)]
        await asyncio.gather(*(rush(limiter, rng, taken) for rng in rngs))
    print(json.dumps({"taken": taken, "writes": writes}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
