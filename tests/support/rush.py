"""This program is one process of several, with many tasks that all want the same bucket.

    python -m tests.support.rush URL SEED

The program prints as JSON the takings, their times, and the number of writes.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time

from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.writes import Granted, Outcome, Write

LIMIT = Limit.per_second("rpm", 2000, burst=1000)
TASKS = 50
SAVED = 100
"""How many writes a process saves at least by letting acquires go together."""
_SECONDS = 1.5
_LONGEST_S = 60


class Rush:
    """A rush records the takings of a process, and in how many writes they were made."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, int, int]] = []
        self.writes = 0
        self._began_s = time.monotonic()

    def goes_on(self) -> bool:
        """Return True for a while, and on a busy machine until enough acquires shared a write."""
        passed_s = time.monotonic() - self._began_s
        is_enough = len(self.taken) - self.writes >= SAVED
        return passed_s < _SECONDS or (not is_enough and passed_s < _LONGEST_S)

    async def take_part(self, limiter: RateLimiter, rng: random.Random) -> None:
        while self.goes_on():
            began_ms, amount = now_ms(), rng.randint(1, 3)
            try:
                async with limiter.acquire("key", "gpt-4", {"rpm": amount}):
                    self.taken.append((began_ms, now_ms(), amount))
            except RateLimitExceeded as refused:
                await asyncio.sleep(min(refused.retry_after_seconds, 0.02))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def main(url: str, seed: str) -> None:
    async with await Repository.open(url=url) as repository:
        buckets, rush = repository.scope.store.buckets, Rush()
        write = buckets.write

        async def counted(address: BucketAddress, planned: Write) -> Outcome:
            outcome = await write(address, planned)
            rush.writes += isinstance(outcome, Granted)
            return outcome

        buckets.write = counted  # type: ignore[method-assign,assignment]
        limiter = RateLimiter(repository, default_limits=[LIMIT])
        rngs = [random.Random(f"{seed}/{number}") for number in range(TASKS)]
        await asyncio.gather(*(rush.take_part(limiter, rng) for rng in rngs))
    print(json.dumps({"taken": rush.taken, "writes": rush.writes}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
