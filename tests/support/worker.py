"""One process of many that share a store, keeping a book of all it took and gave back.

python -m tests.support.worker URL BOOK SECONDS SEED asyncio|threads
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from zae_limiter import (
    RateLimiter,
    RateLimitExceeded,
    Repository,
    SyncRateLimiter,
    SyncRepository,
)

ENTITIES = ("key-1", "key-2")
RESOURCE = "gpt-4"
_TASKS = 6


class Failure(Exception):
    """What a body raises now and then."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one call does, drawn before it begins so that both interfaces do the same."""

    entity_id: str
    amounts: dict[str, int]
    further: int
    correction: int
    fails: bool

    @classmethod
    def draw(cls, rng: random.Random) -> Plan:
        tokens = rng.randint(0, 40)
        return cls(
            rng.choice(ENTITIES),
            {"requests": 1, "tokens": tokens},
            rng.choice((0, 0, 0, 5)),
            max(-tokens, rng.choice((0, 0, -3, 4))),
            rng.random() < 0.2,
        )


class Book:
    """A line for each movement, written at once: what is in it survives a kill."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def write(self, began_ms: int, entity_id: str, amounts: dict[str, int], kind: str) -> None:
        line = {
            "began_ms": began_ms,
            "ended_ms": now_ms(),
            "entity_id": entity_id,
            "amounts": amounts,
            "kind": kind,
        }
        os.write(self._file, json.dumps(line).encode() + b"\n")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def act_async(limiter: RateLimiter, book: Book, plan: Plan) -> None:
    began_ms = now_ms()
    try:
        async with limiter.acquire(plan.entity_id, RESOURCE, plan.amounts) as lease:
            book.write(began_ms, plan.entity_id, plan.amounts, "taken")
            if plan.further:
                await _further_async(lease, book, plan)
            await lease.adjust(tokens=plan.correction)
            await asyncio.sleep(0.001)
            began_ms = now_ms()
            if plan.fails:
                raise Failure
        book.write(began_ms, plan.entity_id, {"tokens": plan.correction}, "adjusted")
    except Failure:
        book.write(began_ms, plan.entity_id, {}, "refunded")
    except RateLimitExceeded:
        await asyncio.sleep(0.003)


async def _further_async(lease: Any, book: Book, plan: Plan) -> None:
    began_ms = now_ms()
    try:
        await lease.consume(tokens=plan.further)
    except RateLimitExceeded:
        return
    book.write(began_ms, plan.entity_id, {"tokens": plan.further}, "taken")


def act_blocking(limiter: SyncRateLimiter, book: Book, plan: Plan) -> None:
    began_ms = now_ms()
    try:
        with limiter.acquire(plan.entity_id, RESOURCE, plan.amounts) as lease:
            book.write(began_ms, plan.entity_id, plan.amounts, "taken")
            if plan.further:
                _further_blocking(lease, book, plan)
            lease.adjust(tokens=plan.correction)
            time.sleep(0.001)
            began_ms = now_ms()
            if plan.fails:
                raise Failure
        book.write(began_ms, plan.entity_id, {"tokens": plan.correction}, "adjusted")
    except Failure:
        book.write(began_ms, plan.entity_id, {}, "refunded")
    except RateLimitExceeded:
        time.sleep(0.003)


def _further_blocking(lease: Any, book: Book, plan: Plan) -> None:
    began_ms = now_ms()
    try:
        lease.consume(tokens=plan.further)
    except RateLimitExceeded:
        return
    book.write(began_ms, plan.entity_id, {"tokens": plan.further}, "taken")


async def work_async(url: str, path: str, until_s: float, seed: int) -> None:
    limiter = RateLimiter(repository=await Repository.open(url=url))

    async def task(number: int) -> None:
        rng = random.Random(f"{seed}/{number}")
        book = Book(f"{path}.{number}")
        while time.time() < until_s:
            await act_async(limiter, book, Plan.draw(rng))

    await asyncio.gather(*(task(number) for number in range(_TASKS)))
    await limiter.close()


def work_blocking(url: str, path: str, until_s: float, seed: int) -> None:
    limiter = SyncRateLimiter(repository=SyncRepository.open(url=url))

    def task(number: int) -> None:
        rng = random.Random(f"{seed}/{number}")
        book = Book(f"{path}.{number}")
        while time.time() < until_s:
            act_blocking(limiter, book, Plan.draw(rng))

    threads = [threading.Thread(target=task, args=(number,)) for number in range(_TASKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    limiter.close()


def main() -> None:
    url, path, seconds, seed, driver = sys.argv[1:]
    until_s = time.time() + float(seconds)
    if driver == "asyncio":
        asyncio.run(work_async(url, path, until_s, int(seed)))
    else:
        work_blocking(url, path, until_s, int(seed))


if __name__ == "__main__":
    main()
