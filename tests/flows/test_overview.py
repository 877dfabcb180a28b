"""Callers of one process share a read of all items of a bucket."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.support.crowd import Crowd, Gate, crowd, take, until
from tests.support.drivers import Driver
from zae_limiter import Limit
from zae_limiter.backends.memory import MemoryStore
from zae_limiter.core.bucket import Bucket, BucketAddress
from zae_limiter.core.writes import Adjust, Granted
from zae_limiter.flows.shards.items import read_all, split_shard

DAILY = Limit.per_day("rpm", 1000)
SHARDS = 4
CALLERS = 20


async def use_up(it: Crowd) -> None:
    """Split the bucket, and take all of it."""
    store = it.origin.scope.store
    assert isinstance(store, MemoryStore)
    store.buckets.metered = True
    await take(it.limiter, rpm=0)
    while len(found := await read_all(it.scope, it.home())) < SHARDS:
        for address, bucket in found.items():
            await split_shard(it.scope, address, bucket)
    assert await take(it.limiter, rpm=DAILY.capacity)


class SlowReads:
    """Slow reads of all items are held up by a gate."""

    def __init__(self, it: Crowd) -> None:
        self.gate = Gate(it.driver)
        self.count = 0
        self._read = it.buckets.read
        it.buckets.read = self.read  # type: ignore[method-assign]

    async def read(self, addresses: Sequence[BucketAddress]) -> dict[BucketAddress, Bucket]:
        if len(addresses) > 1:
            self.count += 1
            await self.gate.passed()
        return await self._read(addresses)


@pytest.mark.parametrize(("coalesce", "most_reads"), [(True, 2), (False, CALLERS)])
async def test_callers_whose_item_is_short_share_one_read_of_all_items(
    driver: Driver, coalesce: bool, most_reads: int
) -> None:
    async with crowd(driver, "memory://", [DAILY], coalesce=coalesce, refusal_cache_ttl=0) as it:
        await use_up(it)
        reads = SlowReads(it)
        reads.gate.close()
        whole = it.home()._replace(shard=-1)
        calls = [it.call(take(it.limiter, rpm=1)) for _ in range(CALLERS)]
        await until(lambda: it.in_line(whole) + reads.count >= CALLERS)
        reads.gate.open()
        assert await asyncio.gather(*calls) == [False] * CALLERS
        assert reads.count == most_reads


async def test_a_read_of_all_items_that_begins_later_sees_refunds(driver: Driver) -> None:
    async with crowd(driver, "memory://", [DAILY], refusal_cache_ttl=0) as it:
        await use_up(it)
        reads = SlowReads(it)
        reads.gate.close()
        whole = it.home()._replace(shard=-1)
        first = it.call(take(it.limiter, rpm=1))
        await until(lambda: reads.count == 1)
        second = it.call(take(it.limiter, rpm=1))
        await until(lambda: it.in_line(whole) == 1)
        await give_back(it, 2000)
        reads.gate.open()
        assert all(await asyncio.gather(first, second))


async def give_back(it: Crowd, amount_milli: int) -> None:
    """Refund one of the items, as another process does."""
    buckets, io = it.origin.scope.store.buckets, it.scope.io
    shard = it.home()._replace(shard=SHARDS - 1)
    back = Adjust(io.operation_id(), io.now_ms(), {"rpm": -amount_milli}, 0)
    assert isinstance(await buckets.write(shard, back), Granted)
