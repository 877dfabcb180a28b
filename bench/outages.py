"""Calls to a store that does not answer: how long they take, and how soon it is back.

    python -m bench.outages

A DynamoDB server behind a proxy turns silent, dripping, resetting, failing or throttling; a SQLite
file is locked. Calls have a timeout and pass uncharged. `slow` are the calls until the breaker
opens, `open` those after it; `back` is the time from the store's return to the first charge.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.servers.chaos import (
    INTERNAL_ERROR,
    THROTTLED,
    Act,
    ChaosProxy,
    Drip,
    Hold,
    Reset,
)
from tests.support.servers.processes import start
from tests.support.servers.tables import own_table

from zae_limiter import Limit, OnUnavailable, SyncRateLimiter, SyncRepository
from zae_limiter.backends.dynamodb.url import dynamodb_url

TIMEOUT_S = 0.2
_CALLS_WHILE_OPEN = 2000
_LONGEST_BACK_S = 10.0


def acquire(limiter: SyncRateLimiter) -> tuple[bool, float]:
    """Acquire once: whether it passed uncharged, and after how many milliseconds."""
    began_s = time.perf_counter()
    with limiter.acquire(
        "key", "api", {"rpm": 1}, on_unavailable=OnUnavailable.ALLOW, timeout=TIMEOUT_S
    ) as lease:
        return lease.degraded, (time.perf_counter() - began_s) * 1000


def percentile_99(values: list[float]) -> float:
    return round(sorted(values)[int(len(values) * 0.99)], 2) if values else 0.0


def measure(name: str, url: str, begin: Callable[[], None], end: Callable[[], None]) -> None:
    with SyncRepository.open(url=url) as repository:
        limiter = SyncRateLimiter(repository, default_limits=[Limit.per_day("rpm", 10**9)])
        acquire(limiter)
        begin()
        slow_ms: list[float] = []
        open_ms: list[float] = []
        while len(slow_ms) < 20 and repository.get_cache_stats().breaker == "closed":
            slow_ms.append(acquire(limiter)[1])
        if repository.get_cache_stats().breaker != "closed":
            open_ms = [acquire(limiter)[1] for _ in range(_CALLS_WHILE_OPEN)]
        end()
        back_s = time.perf_counter()
        while acquire(limiter)[0] and time.perf_counter() - back_s < _LONGEST_BACK_S:
            time.sleep(0.01)
        found = {
            "store": name,
            "timeout_ms": TIMEOUT_S * 1000,
            "slow_p99_ms": percentile_99(slow_ms),
            "open_p50_ms": round(statistics.median(open_ms or [0.0]), 2),
            "open_p99_ms": percentile_99(open_ms),
            "back_s": round(time.perf_counter() - back_s, 2),
        }
    print(json.dumps(found), flush=True)


@contextmanager
def locked_file() -> Iterator[tuple[str, Callable[[], None], Callable[[], None]]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "limits.db"
        SyncRepository.open(url=f"sqlite:///{path}").close()
        other = sqlite3.connect(path, isolation_level=None)
        yield (
            f"sqlite:///{path}",
            lambda: _execute(other, "BEGIN IMMEDIATE"),
            lambda: _execute(other, "ROLLBACK"),
        )
        other.close()


def _execute(other: sqlite3.Connection, statement: str) -> None:
    other.execute(statement)


def main() -> None:
    over = threading.Event()
    acts: dict[str, Act] = {
        "silent": Hold(over),
        "dripping": Drip(0.05),
        "resetting": Reset(),
        "failing": INTERNAL_ERROR,
        "throttling": THROTTLED,
    }
    with start("dynoxide") as server, own_table(server) as table, ChaosProxy(server.url) as proxy:
        url = dynamodb_url(table.name, server.region, proxy.url)
        for name, act in acts.items():
            over.clear()

            def begin(act: Act = act) -> None:
                proxy.use(itertools.repeat(act))

            def end() -> None:
                proxy.use(())
                over.set()

            measure(name, url, begin, end)
    with locked_file() as (url, begin_lock, end_lock):
        measure("locked", url, begin_lock, end_lock)


if __name__ == "__main__":
    main()
