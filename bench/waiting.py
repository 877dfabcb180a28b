"""Many tasks wait for one key: served in order, at a cost per waiter that does not grow.

    python -m bench.waiting [--store memory|sqlite]

Each row is a process of its own. `late` counts waiters that overtook one that came more than a
batch earlier; `other` is a call at another key meanwhile, compared with the same call when nobody
waits.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository

RATE = 2000
TIMEOUT_S = 6
COUNTS = (100, 1000, 8000, 10_000)
_BATCH = 64


class Crowd:
    """The tasks that wait, and what became of them."""

    def __init__(self, limiter: RateLimiter) -> None:
        self._limiter = limiter
        self.order: list[int] = []
        self.refused = 0

    async def wait(self, number: int) -> None:
        try:
            async with self._limiter.acquire("hot", "api", {"rps": 1}, timeout=TIMEOUT_S):
                self.order.append(number)
        except RateLimitExceeded:
            self.refused += 1

    @property
    def late(self) -> int:
        return sum(latest - number > _BATCH for latest, number in self._with_latest())

    def _with_latest(self) -> list[tuple[int, int]]:
        latest, pairs = 0, []
        for number in self.order:
            latest = max(latest, number)
            pairs.append((latest, number))
        return pairs


async def other_calls(limiter: RateLimiter, over: asyncio.Event) -> list[float]:
    """How long calls at another key take, in milliseconds."""
    took_ms: list[float] = []
    while not over.is_set() or len(took_ms) < 20:
        began_s = time.perf_counter()
        async with limiter.acquire("other", "api", {"rps": 0}):
            took_ms.append((time.perf_counter() - began_s) * 1000)
        await asyncio.sleep(0.01)
    return took_ms


async def measure(url: str, count: int) -> dict[str, float]:
    async with await Repository.open(url=url) as repository:
        limiter = RateLimiter(repository, default_limits=[Limit.per_second("rps", RATE)])
        async with limiter.acquire("hot", "api", {"rps": RATE}):
            pass
        over = asyncio.Event()
        over.set()
        alone_ms = await other_calls(limiter, over)
        over.clear()
        left = await limiter.available("hot", "api")
        async with limiter.acquire("hot", "api", left):
            pass
        crowd, cpu_s, began_s = Crowd(limiter), time.process_time(), time.perf_counter()
        others = asyncio.ensure_future(other_calls(limiter, over))
        await asyncio.gather(*(crowd.wait(number) for number in range(count)))
        wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
        over.set()
        return {
            "waiters": count,
            "served": len(crowd.order),
            "refused": crowd.refused,
            "late": crowd.late,
            "seconds": round(wall_s, 2),
            "cpu_us_per_waiter": round(cpu_s / count * 1e6),
            "other_ms": round(statistics.median(await others), 2),
            "other_alone_ms": round(statistics.median(alone_ms), 2),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=("memory", "sqlite"), default="memory")
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.count is None:
        for count in COUNTS:
            command = [sys.executable, "-m", "bench.waiting", "--store", chosen.store]
            subprocess.run([*command, "--count", str(count)], check=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        file_url = f"sqlite:///{Path(folder) / 'limits.db'}"
        url = "memory://" if chosen.store == "memory" else file_url
        # What Python's collector takes grows with the number of living tasks, whatever they do.
        gc.disable()
        print(json.dumps(asyncio.run(measure(url, chosen.count))))


if __name__ == "__main__":
    main()
