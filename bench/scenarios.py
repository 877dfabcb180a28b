"""Every way an acquire can go on DynamoDB, each as a small story of which one part is billed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.support.drivers import Awaited, Driver, limiter_on, open_repository

from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.flows.shards.items import read_all, split_shard
from zae_limiter.testing import ManualClock

from .costs import Cost, billed

CAPACITY = 100_000
CROWD = 100
NAMES = ("rpm", "tpm", "rph", "tph", "rpd", "tpd")
_RESOURCE = "gpt-4"
_STEP_S = 0.01


class BodyFailed(Exception):
    """What a block raises to have its charge refunded."""


async def take(
    limiter: RateLimiter, amounts: dict[str, int], entity_id: str = "key", resource: str = _RESOURCE
) -> None:
    """Acquire, and end the lease at once."""
    async with limiter.acquire(entity_id, resource, amounts):
        pass


@dataclass
class Stage:
    """A process, and others on the same table; time stands still."""

    driver: Driver
    url: str
    namespace: str
    limit_count: int
    clock: ManualClock = field(default_factory=ManualClock)
    cost: Cost = field(default_factory=Cost)
    opened: list[Repository] = field(default_factory=list)

    @property
    def limits(self) -> list[Limit]:
        return [Limit.per_minute(name, CAPACITY) for name in NAMES[: self.limit_count]]

    def amounts(self, amount: int = 1) -> dict[str, int]:
        """So much of every limit."""
        return dict.fromkeys(NAMES[: self.limit_count], amount)

    @property
    def limiter(self) -> RateLimiter:
        """The process that is billed."""
        return limiter_on(self.opened[0])

    async def process(self) -> RateLimiter:
        """Another process: nothing is remembered there."""
        repository = await open_repository(
            self.driver, self.namespace, url=self.url, clock=self.clock
        )
        self.opened.append(repository)
        return limiter_on(repository)

    async def take(self, entity_id: str = "key", amount: int = 1) -> None:
        """Acquire so much of every limit, a moment later."""
        self.clock.advance(_STEP_S)
        await take(self.limiter, self.amounts(amount), entity_id)

    async def refused(self, entity_id: str = "key", amount: int = 1) -> None:
        """The same, where there is not enough."""
        try:
            await self.take(entity_id, amount)
        except RateLimitExceeded:
            return
        raise AssertionError("nothing was short")

    async def chain(self, levels: int) -> None:
        """`key` and its ancestors, each of which cascades to the next."""
        ids = ["key", *(f"level-{level}" for level in range(2, levels + 1))]
        for child, parent in zip(ids, [*ids[1:], None], strict=True):
            await self.limiter.create_entity(child, parent_id=parent, cascade=parent is not None)

    async def split(self, shard_count: int) -> None:
        """Spread the bucket of `key` over so many items."""
        await self.take()
        scope = self.opened[0].scope
        home = BucketAddress(scope.namespace_id, "key", _RESOURCE)
        while len(found := await read_all(scope, home)) < shard_count:
            for address, bucket in found.items():
                await split_shard(scope, address, bucket)

    @contextmanager
    def bill(self, times: int = 1) -> Iterator[None]:
        """The part of the story that counts, and how often it happens in it."""
        store: Any = self.opened[0].scope.store
        assert isinstance(store, DynamoStore)
        with billed(store.table) as bill:
            yield
        self.cost = bill.cost.each(times)


Story = Callable[[Stage], Awaitable[None]]
PATHS: dict[str, Story] = {}


def path(title: str) -> Callable[[Story], Story]:
    """Put a story into the table."""

    def register(story: Story) -> Story:
        PATHS[title] = story
        return story

    return register


async def measure(title: str, driver: Driver, url: str, namespace: str, limit_count: int) -> Cost:
    """What one path costs, in a namespace of its own."""
    stage = Stage(driver, url, namespace, limit_count)
    try:
        await stage.process()
        await stage.limiter.set_system_defaults(stage.limits)
        await PATHS[title](stage)
    finally:
        for repository in stage.opened:
            await repository.close()
    return stage.cost


@path("acquire, warm")
async def _warm(stage: Stage) -> None:
    await stage.take()
    with stage.bill(times=10):
        for _ in range(10):
            await stage.take()


@path("acquire, while another process uses the bucket too")
async def _shared(stage: Stage) -> None:
    other = await stage.process()
    await stage.take(amount=CAPACITY // 2)
    await take(other, stage.amounts())
    with stage.bill(times=10):
        for _ in range(10):
            await take(other, stage.amounts())
            await stage.take()


@path("acquire from a full bucket that another process used last")
async def _full(stage: Stage) -> None:
    other = await stage.process()
    await stage.take()
    with stage.bill(times=10):
        for _ in range(10):
            stage.clock.advance(_STEP_S)
            await take(other, stage.amounts())
            await stage.take()


@path("acquire from a full bucket that another process is just using")
async def _raced(stage: Stage) -> None:
    other = await stage.process()
    await stage.take()
    with stage.bill(times=10):
        for _ in range(10):
            stage.clock.advance(_STEP_S)
            await take(other, stage.amounts())
            await take(stage.limiter, stage.amounts())


@path("acquire and adjust")
async def _adjusted(stage: Stage) -> None:
    await stage.take()
    with stage.bill():
        async with stage.limiter.acquire("key", _RESOURCE, stage.amounts()) as lease:
            await lease.adjust(**stage.amounts(2))


@path("acquire and release")
async def _released(stage: Stage) -> None:
    await stage.take(amount=10)
    with stage.bill():
        async with stage.limiter.acquire("key", _RESOURCE, stage.amounts(9)) as lease:
            await lease.release(**stage.amounts(5))


@path("acquire, the block fails: refund")
async def _refunded(stage: Stage) -> None:
    await stage.take(amount=10)
    with stage.bill(), suppress(BodyFailed):
        async with stage.limiter.acquire("key", _RESOURCE, stage.amounts()):
            raise BodyFailed


@path("acquire and lease.consume")
async def _consumed(stage: Stage) -> None:
    await stage.take()
    with stage.bill():
        async with stage.limiter.acquire("key", _RESOURCE, stage.amounts()) as lease:
            await lease.consume(**stage.amounts())


async def _levels(stage: Stage, levels: int) -> None:
    await stage.chain(levels)
    await stage.take()
    with stage.bill(times=5):
        for _ in range(5):
            await stage.take()


@path("acquire with a parent")
async def _two_levels(stage: Stage) -> None:
    await _levels(stage, 2)


@path("acquire with 4 levels")
async def _four_levels(stage: Stage) -> None:
    await _levels(stage, 4)


@path("acquire with 8 levels")
async def _eight_levels(stage: Stage) -> None:
    await _levels(stage, 8)


@path("acquire that needs the refill")
async def _refilled(stage: Stage) -> None:
    await stage.take(amount=CAPACITY)
    stage.clock.advance(30)
    with stage.bill():
        await stage.take(amount=CAPACITY // 4)


@path("acquire that needs the refill, after another process emptied the bucket")
async def _refilled_after_others(stage: Stage) -> None:
    other = await stage.process()
    await stage.take()
    await take(other, stage.amounts(CAPACITY - 1))
    stage.clock.advance(30)
    with stage.bill():
        await stage.take(amount=CAPACITY // 4)


@path("refusal")
async def _refusal(stage: Stage) -> None:
    await stage.take(amount=CAPACITY)
    with stage.bill():
        await stage.refused(amount=CAPACITY)


@path("refusal of a bucket that is known to be short")
async def _known_refusal(stage: Stage) -> None:
    await stage.take(amount=CAPACITY)
    await stage.refused(amount=CAPACITY)
    with stage.bill(times=50):
        for _ in range(50):
            await stage.refused(amount=CAPACITY)


@path("refusal by a parent")
async def _parent_refusal(stage: Stage) -> None:
    await stage.chain(2)
    await stage.take()
    await stage.take("level-2", CAPACITY - 1)
    with stage.bill():
        await stage.refused(amount=CAPACITY // 2)


@path("refusal by a parent that another process has just charged")
async def _charged_parent_refusal(stage: Stage) -> None:
    await stage.chain(2)
    other = await stage.process()
    for _ in range(2):
        await take(other, stage.amounts(1))
    await stage.take("level-2", CAPACITY // 2)
    await take(other, stage.amounts(1))
    with stage.bill():
        await stage.refused("level-2", CAPACITY)


@path("acquire with a parent that has little left")
async def _tight_parent(stage: Stage) -> None:
    await stage.chain(2)
    await stage.take()
    await stage.take("level-2", CAPACITY - 8)
    with stage.bill():
        await stage.take()


@path("acquire with a parent that this process has not seen")
async def _unseen_parent(stage: Stage) -> None:
    await stage.chain(2)
    await stage.take()
    scope = stage.opened[0].scope
    scope.local.images.discard(BucketAddress(scope.namespace_id, "level-2", _RESOURCE))
    with stage.bill():
        await stage.take()


@path("first acquire of an entity")
async def _first(stage: Stage) -> None:
    await stage.take("other")
    with stage.bill():
        await stage.take()


async def _cold(stage: Stage, taken: int) -> None:
    other = await stage.process()
    await take(other, stage.amounts(taken))
    with stage.bill():
        await stage.take()


@path("first acquire of a process, bucket full")
async def _cold_and_full(stage: Stage) -> None:
    await _cold(stage, 1)


@path("first acquire of a process, bucket not full")
async def _cold_and_low(stage: Stage) -> None:
    await _cold(stage, CAPACITY // 3)


@path("acquire after the configuration cache ran out")
async def _stale_config(stage: Stage) -> None:
    await stage.take()
    stage.clock.advance(61)
    with stage.bill():
        await stage.take()


@path("acquire after limits were changed elsewhere")
async def _changed_limits(stage: Stage) -> None:
    other = await stage.process()
    await stage.take()
    await other.set_limits("key", [Limit.per_minute(x.name, 7) for x in stage.limits], _RESOURCE)
    stage.clock.advance(61)
    with stage.bill():
        await stage.take()


@path("acquire, speculative_writes=False")
async def _looked_at(stage: Stage) -> None:
    await stage.take()
    careful = limiter_on(stage.opened[0], speculative_writes=False)
    with stage.bill():
        await take(careful, stage.amounts())


@path("first acquire in a TTL from a bucket of 8 shards")
async def _kept_up(stage: Stage) -> None:
    await stage.split(8)
    with stage.bill():
        await stage.take()


@path("acquire from a bucket of 8 shards")
async def _sharded(stage: Stage) -> None:
    await stage.split(8)
    await stage.take()
    with stage.bill(times=10):
        for _ in range(10):
            await stage.take()


@path("acquire of 30 % of the capacity from 8 shards")
async def _withdrawn(stage: Stage) -> None:
    await stage.split(8)
    await stage.take()
    with stage.bill():
        await stage.take(amount=CAPACITY * 3 // 10)


@path("split of a shard")
async def _split(stage: Stage) -> None:
    await stage.take()
    scope = stage.opened[0].scope
    home = BucketAddress(scope.namespace_id, "key", _RESOURCE)
    bucket = (await read_all(scope, home))[home]
    with stage.bill():
        assert await split_shard(scope, home, bucket)


@path(f"{CROWD} acquires of one process at once, one bucket")
async def _coalesced(stage: Stage) -> None:
    await stage.take()
    with stage.bill():
        await _crowd(stage)


async def _crowd(stage: Stage) -> None:
    limiter: Any = stage.limiter
    if not isinstance(limiter, Awaited):
        takes = (take(limiter, stage.amounts()) for _ in range(CROWD))
        await asyncio.gather(*takes)
        return

    def take_one(_: int) -> None:
        with limiter.inner.acquire("key", _RESOURCE, stage.amounts()):
            pass

    with ThreadPoolExecutor(CROWD) as pool:
        list(pool.map(take_one, range(CROWD)))


@path("available")
async def _available(stage: Stage) -> None:
    await stage.take()
    with stage.bill():
        await stage.limiter.available("key", _RESOURCE)
