"""A client that charges one bucket at random and keeps a book of it, in a process of its own.

python -m tests.support.table_client '{"url": ..., "driver": ..., "seconds": ..., ...}'
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sys
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.books import Book
from tests.support.drivers import Driver, limiter_on, open_repository
from zae_limiter import (
    Limit,
    RateLimiter,
    RateLimiterUnavailable,
    RateLimitExceeded,
    Repository,
)
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.exceptions import StorageUnavailable
from zae_limiter.core.shards import MAX_SHARDS
from zae_limiter.flows.shards.items import read_all, split_shard

ENTITY, RESOURCE = "key", "gpt-4"
LIMITS = [Limit("rpm", 60, 5, 1), Limit("tpm", 8_000, 400, 1)]
_NAP_S = 0.02


@dataclass(frozen=True)
class Task:
    """What a client is to do from the moment on when there is a file at `gate` until there is
    one at `end`.

    `wanted`: what every lease takes; else it is random. `splits` and `changes`: how many steps
    in a thousand split an item, or change the limits. `keeps`: every lease keeps what it took.
    `punctual`: who is refused comes back at the very moment it was told.
    """

    url: str
    namespace: str
    book: str
    gate: str
    end: str
    driver: Driver = "asyncio"
    seed: int = 0
    workers: int = 1
    wanted: dict[str, int] | None = None
    splits: int = 0
    changes: int = 0
    refunds: bool = True
    keeps: bool = False
    punctual: bool = False


class BodyFailed(Exception):
    """What a block raises to have its charge refunded."""


_warned: ContextVar[list[str]] = ContextVar("_warned")


class Warnings(logging.Handler):
    """A refund that fails is told of in the log alone: remembered for the lease it belongs to."""

    def emit(self, record: logging.LogRecord) -> None:
        _warned.get([]).append(record.getMessage())


@dataclass
class Client:
    """One process's work."""

    task: Task
    repository: Repository
    limiter: RateLimiter
    book: Book
    chance: random.Random
    parent: int = field(default_factory=os.getppid)

    async def work(self) -> None:
        """Until it is told to end, or nobody is left to tell it."""
        while not self._is_over():
            throw = self.chance.randrange(1000)
            if throw < self.task.splits:
                await self._split()
            elif throw < self.task.splits + self.task.changes:
                await self._change_limits()
            else:
                await self._use()

    def _is_over(self) -> bool:
        return Path(self.task.end).exists() or os.getppid() != self.parent

    async def _use(self) -> None:
        """One lease of random size and fate."""
        wanted = self.task.wanted or {
            "rpm": self.chance.randint(0, 3),
            "tpm": self.chance.randint(1, 400),
        }
        step = self.book.begin(wanted, acquires=1, admitted=True)
        closing: int | None = None
        _warned.set([])
        try:
            async with self.limiter.acquire(ENTITY, RESOURCE, wanted) as lease:
                self.book.end(step)
                self.book.note("admitted")
                closing = None if self.task.keeps else await self._spend(lease, wanted)
        except RateLimitExceeded as refusal:
            self.book.end(step, done=False)
            self.book.note("refused")
            nap_s = (
                refusal.retry_after_seconds if self.task.punctual else _NAP_S * self.chance.random()
            )
            await asyncio.sleep(nap_s)
        except RateLimiterUnavailable as error:
            self._mourn(error, step, closing)
        except BodyFailed as failure:
            if _warned.get():
                self.book.note("not refunded")
            else:
                self.book.end(failure.args[0])
                self.book.note("refunded")
        else:
            if closing is not None:
                self.book.end(closing)
                self.book.note("corrected")

    async def _spend(self, lease: object, wanted: dict[str, int]) -> int | None:
        """What happens in the block: the number of the step that its end will write, if any."""
        fate = self.chance.choice(
            ["keep", "keep", "adjust", *(["fail", "release"] if self.task.refunds else [])]
        )
        if fate == "fail":
            back = {name: -amount for name, amount in wanted.items()}
            raise BodyFailed(self.book.begin(back, acquires=-1))
        if fate == "keep":
            return None
        delta = self.chance.randint(1, 50)
        if fate == "release":
            delta = -self.chance.randint(1, wanted["tpm"])
        await lease.adjust(tpm=delta)  # type: ignore[attr-defined]
        return self.book.begin({"tpm": delta})

    def _mourn(self, error: RateLimiterUnavailable, step: int, closing: int | None) -> None:
        """The store did not answer. What surely did not happen is not left open."""
        self.book.note("unavailable")
        cause = error.cause
        assert isinstance(cause, StorageUnavailable)
        if not cause.ambiguous:
            self.book.note("surely nothing")
            self.book.end(step if closing is None else closing, done=False)

    async def _split(self) -> None:
        scope = self.repository.scope
        home = BucketAddress(scope.namespace_id, ENTITY, RESOURCE)
        found = await read_all(scope, home)
        address = self.chance.choice(sorted(found)) if found else home
        bucket = found.get(address)
        if bucket is None or bucket.shard_count == MAX_SHARDS:
            return
        await split_shard(scope, address, bucket)

    async def _change_limits(self) -> None:
        part = self.chance.choice([60, 80, 100])
        changed = [
            Limit(
                each.name,
                each.capacity * part // 100,
                each.refill_amount * part // 100,
                each.refill_period_seconds,
            )
            for each in LIMITS
        ]
        await self.limiter.set_limits(ENTITY, changed, RESOURCE)
        self.book.note("limits changed")


def _wait_for(gate: Path) -> None:
    while not gate.exists():
        time.sleep(0.01)


async def run_client(task: Task) -> None:
    """Open the store, work, close it."""
    logging.getLogger("zae_limiter").addHandler(Warnings())
    repository = await open_repository(
        task.driver, task.namespace, url=task.url, config_cache_ttl=1
    )
    client = Client(
        task, repository, limiter_on(repository), Book(Path(task.book)), random.Random(task.seed)
    )
    client.book.note("ready")
    await asyncio.to_thread(_wait_for, Path(task.gate))
    await asyncio.gather(*(client.work() for _ in range(task.workers)))
    client.book.note("ended")
    await repository.close()


if __name__ == "__main__":
    asyncio.run(run_client(Task(**json.loads(sys.argv[1]))))
