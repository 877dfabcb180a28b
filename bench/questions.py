"""The price of questions about many entities, for the question and for those who work meanwhile.

    python -m bench.questions                     # 100 to 10,000 entities on SQLite, some seconds
    python -m bench.questions --entities 1000000

Each question runs in a process whose other task acquires all the time. The table shows the time of
the question, in all and for each entity, the median of the other task's acquires before and during
the question, and the longest time for which the event loop stood still.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import NamedTuple

from zae_limiter import Limit, RateLimiter, Repository

RESOURCE = "gpt-4"
LIMITS = [Limit.per_day("rpd", 1_000_000)]
DEFAULT_ENTITIES = (100, 1_000, 10_000)
_ALONE_S = 0.5
_HOUR_MS = 3_600_000
_TICK_S = 0.001
_BUCKETS = "state, recent, shape, usage_hour_ms, usage_counted, look_at_s"
_COPY_BUCKETS = f"""
    INSERT INTO buckets (namespace_id, entity_id, resource, shard, {_BUCKETS})
    SELECT namespace_id, printf('e%07d', value), resource, shard, {_BUCKETS}
    FROM buckets, (
        WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < ?)
        SELECT value FROM n
    ) WHERE entity_id = 'first'
"""
_COPY_USAGE = """
    INSERT INTO usage (namespace_id, entity_id, resource, hour_ms, counts)
    SELECT namespace_id, entity_id, resource, usage_hour_ms - ?, '[1,{"rpd":1000}]' FROM buckets
"""

Question = Callable[[RateLimiter], Awaitable[object]]


async def _all_snapshots(limiter: RateLimiter) -> int:
    count, key = 0, None
    while True:
        page, key = await limiter.get_usage_snapshots(
            resource=RESOURCE, window_type="hourly", limit=1000, next_key=key
        )
        count += len(page)
        if key is None:
            return count


QUESTIONS: dict[str, Question] = {
    "usage summary": lambda limiter: limiter.get_usage_summary(resource=RESOURCE),
    "usage, first page": lambda limiter: limiter.get_usage_snapshots(resource=RESOURCE),
    "usage, all pages": _all_snapshots,
    "capacity": lambda limiter: limiter.get_resource_capacity(RESOURCE, "rpd"),
}


class Price(NamedTuple):
    """The price of one question."""

    entities: int
    question: str
    seconds: float
    alone_ms: float
    during_ms: float
    stall_ms: float

    def row(self) -> str:
        """Return a row of a Markdown table."""
        each_us = self.seconds / self.entities * 1e6
        return (
            f"| {self.entities:,} | {self.question} | {self.seconds:.2f} | {each_us:.0f} |"
            f" {self.alone_ms:.2f} | {self.during_ms:.2f} | {self.stall_ms:.0f} |"
        )


HEADER = (
    "| entities | question | s | µs each | acquire alone, ms | meanwhile, ms | loop stall, ms |\n"
    "| --- | --- | --- | --- | --- | --- | --- |"
)


class Worker:
    """A task that acquires all the time, and one that watches the event loop."""

    def __init__(self, limiter: RateLimiter) -> None:
        self._limiter = limiter
        self._tasks = [asyncio.create_task(self._acquire()), asyncio.create_task(self._watch())]
        self.acquires_ms: list[float] = []
        self.stalls_ms: list[float] = [0.0]

    async def _acquire(self) -> None:
        while True:
            begun = time.perf_counter()
            async with self._limiter.acquire("worker", "work", {"rpd": 1}, LIMITS):
                self.acquires_ms.append((time.perf_counter() - begun) * 1000)
            await asyncio.sleep(_TICK_S)

    async def _watch(self) -> None:
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(_TICK_S)
            self.stalls_ms.append((time.perf_counter() - begun - _TICK_S) * 1000)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def fill(path: Path, entities: int) -> None:
    """Copy the bucket of one entity, with its usage, to many entities."""
    with closing(sqlite3.connect(path)) as db:
        db.execute(_COPY_BUCKETS, (entities,))
        db.execute(_COPY_USAGE, (_HOUR_MS,))
        db.commit()


async def price(limiter: RateLimiter, entities: int, name: str) -> Price:
    worker = Worker(limiter)
    await asyncio.sleep(_ALONE_S)
    alone_ms = median(worker.acquires_ms)
    worker.acquires_ms.clear()
    worker.stalls_ms[:] = [0.0]
    begun = time.perf_counter()
    await QUESTIONS[name](limiter)
    seconds = time.perf_counter() - begun
    during_ms, stall_ms = median(worker.acquires_ms or [0.0]), max(worker.stalls_ms)
    await worker.stop()
    return Price(entities, name, seconds, alone_ms, during_ms, stall_ms)


async def prices(entities: int) -> list[Price]:
    """Return the price of each question about so many entities."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "limits.db"
        async with await Repository.open(url=f"sqlite:///{path}") as repository:
            limiter = RateLimiter(repository)
            async with limiter.acquire("first", RESOURCE, {"rpd": 1}, LIMITS):
                pass
            await asyncio.to_thread(fill, path, entities)
            return [await price(limiter, entities, name) for name in QUESTIONS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entities", type=int, nargs="+", default=DEFAULT_ENTITIES)
    print(HEADER)
    for entities in parser.parse_args().entities:
        for found in asyncio.run(prices(entities)):
            print(found.row(), flush=True)


if __name__ == "__main__":
    main()
