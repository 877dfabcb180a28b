"""A client that charges several entities at random and keeps a book of each, in a process of its
own.

python -m tests.support.stream_client '{"url": ..., "book": ..., "steps": ...}'
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.books import ACQUIRES, Book
from zae_limiter import Lease, Limit, RateLimiter, RateLimitExceeded, Repository
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.shards import MAX_SHARDS
from zae_limiter.flows.shards.items import read_all, split_shard

NAMESPACE, RESOURCE = "usage", "gpt-4"
LIMITS = [Limit("rpm", 3000, 1000, 1), Limit("a-b.c", 50_000, 50_000, 1)]
# Each entity with all that are charged for it.
CHAINS = {
    "alone": ["alone"],
    "hot": ["hot"],
    "child-1": ["child-1", "org"],
    "child-2": ["child-2", "org"],
}
_SPLITS_PER_THOUSAND = 15


class BodyFailed(Exception):
    """What a block raises to have its charge refunded."""


@dataclass(frozen=True)
class StreamTask:
    """What a client is to do: so many steps, each a lease of random size and fate, and more of them
    until the file `until` is there."""

    url: str
    book: str
    steps: int
    seed: int
    workers: int = 3
    until: str | None = None


@dataclass
class StreamClient:
    """One process's work."""

    task: StreamTask
    limiter: RateLimiter
    repository: Repository
    book: Book
    chance: random.Random
    done: int = field(default=0)

    async def work(self) -> None:
        while self.done < self.task.steps or self._is_to_go_on():
            self.done += 1
            entity_id = self.chance.choice([*CHAINS, "hot", "hot"])
            if self.chance.randrange(1000) < _SPLITS_PER_THOUSAND:
                await self._split(self.chance.choice(CHAINS[entity_id]))
            else:
                await self._use(entity_id)

    def _is_to_go_on(self) -> bool:
        return self.task.until is not None and not Path(self.task.until).exists()

    async def _use(self, entity_id: str) -> None:
        wanted = {"rpm": self.chance.randint(1, 3), "a-b.c": self.chance.randint(0, 400)}
        step = self._begin(entity_id, wanted, acquires=1)
        refund: int | None = None
        try:
            async with self.limiter.acquire(entity_id, RESOURCE, wanted) as lease:
                self.book.end(step)
                step = await self._spend(lease, entity_id)
                if self.chance.random() < 0.2:
                    self.book.end(step, done=False)
                    total = {name: -amount for name, amount in wanted.items()}
                    refund = self._begin(entity_id, total, acquires=-1)
                    raise BodyFailed
        except RateLimitExceeded:
            self.book.end(step, done=False)
            self.book.note("refused")
            await asyncio.sleep(0.01)
        except BodyFailed:
            assert refund is not None
            self.book.end(refund)
        else:
            self.book.end(step)

    async def _spend(self, lease: Lease, entity_id: str) -> int:
        """Correct the charge, up or down. Returns the step that the end of the lease writes."""
        delta = self.chance.choice([0, 0, 7, -1])
        if delta:
            await lease.adjust(rpm=delta)
        return self._begin(entity_id, {"rpm": delta})

    def _begin(self, entity_id: str, amounts: Mapping[str, int], acquires: int = 0) -> int:
        changes = {
            f"{level} {name}": amount
            for level in CHAINS[entity_id]
            for name, amount in {**amounts, ACQUIRES: acquires}.items()
        }
        return self.book.begin(changes)

    async def _split(self, entity_id: str) -> None:
        scope = self.repository.scope
        found = await read_all(scope, BucketAddress(scope.namespace_id, entity_id, RESOURCE))
        if found:
            address = self.chance.choice(sorted(found))
            if found[address].shard_count < MAX_SHARDS:
                self.book.note("split")
                await split_shard(scope, address, found[address])


async def run_stream_client(task: StreamTask) -> None:
    """Open the store, work, close it."""
    repository = await Repository.open(NAMESPACE, url=task.url)
    client = StreamClient(
        task,
        RateLimiter(repository=repository),
        repository,
        Book(Path(task.book)),
        random.Random(task.seed),
    )
    await asyncio.gather(*(client.work() for _ in range(task.workers)))
    await repository.close()


if __name__ == "__main__":
    asyncio.run(run_stream_client(StreamTask(**json.loads(sys.argv[1]))))
