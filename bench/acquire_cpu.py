"""Client CPU for one warm acquire of two limits on DynamoDB, the whole library included.

    python -m bench.acquire_cpu

A bucket in use is drained as it is; one that has come to its ceiling meanwhile is refilled
by the same write. Starts a DynamoDB of its own. Reports the best of many short rounds,
because other work on the machine only ever adds.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from tests.support.servers.processes import start

from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository

_ROUNDS = 40
_CALLS = 50
_TAKES = {"rpm": 1, "tpm": 500}
_LIMITS = {
    "drained": [Limit.per_day("rpm", 10_000_000), Limit.per_day("tpm", 1_000_000_000)],
    "refilled": [Limit.per_second("rpm", 1_000_000), Limit.per_second("tpm", 10_000_000)],
}


def main() -> None:
    os.environ |= {"AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST", "AWS_SECRET_ACCESS_KEY": "test"}
    with ExitStack() as stack:
        server = stack.enter_context(start("dynoxide"))
        measures = _measures(stack, server.region, server.url)
        best = dict.fromkeys(measures, float("inf"))
        for _ in range(_ROUNDS):
            for name, measure in measures.items():
                best[name] = min(best[name], measure())
    for name, cpu_s in best.items():
        print(f"{name:32} {1e6 * cpu_s / _CALLS:7.0f} us of CPU per acquire")


def _measures(stack: ExitStack, region: str, url: str) -> dict[str, Callable[[], float]]:
    measures: dict[str, Callable[[], float]] = {}
    loop = stack.enter_context(asyncio.Runner())
    for kind, limits in _LIMITS.items():
        place: dict[str, Any] = {"stack": f"cpu-{kind}", "region": region, "endpoint_url": url}
        repository = SyncRepository.open(**place)
        repository.set_system_defaults(limits)
        stack.callback(repository.close)
        blocking = SyncRateLimiter(repository)
        asynchronous = RateLimiter(loop.run(Repository.open(**place)))
        stack.callback(lambda a=asynchronous: loop.run(a.close()))  # type: ignore[misc]
        measures[f"blocking, {kind}"] = lambda b=blocking: _blocking(b)  # type: ignore[misc]
        measures[f"asyncio, {kind}"] = lambda a=asynchronous: loop.run(_asyncio(a))  # type: ignore[misc]
    return measures


def _blocking(limiter: SyncRateLimiter) -> float:
    with limiter.acquire("blocking", "model", _TAKES):
        started_s = time.process_time()
    for _ in range(_CALLS):
        with limiter.acquire("blocking", "model", _TAKES):
            pass
    return time.process_time() - started_s


async def _asyncio(limiter: RateLimiter) -> float:
    async with limiter.acquire("asyncio", "model", _TAKES):
        started_s = time.process_time()
    for _ in range(_CALLS):
        async with limiter.acquire("asyncio", "model", _TAKES):
            pass
    return time.process_time() - started_s


if __name__ == "__main__":
    main()
