"""Races that seeds have found, each told as short as it can be."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from zae_limiter import Limit
from zae_limiter.backends.memory import MemoryStore
from zae_limiter.core.composite import Bucket, BucketAddress
from zae_limiter.core.exceptions import StorageUnavailable
from zae_limiter.core.limit import MILLI
from zae_limiter.core.writes import Adjust, Outcome, Write
from zae_limiter.flows.cascade import make_request
from zae_limiter.flows.lease import Terms, end_lease, open_lease
from zae_limiter.flows.scope import Scope
from zae_limiter.flows.shards import split_shard
from zae_limiter.runtime.simulated import Simulation

LIMITS = [Limit.per_second("rps", 1, burst=10)]
HOME = BucketAddress("n", "key", "api")


class Desk:
    """One client of one store, and what its calls leave behind."""

    def __init__(self, store: MemoryStore) -> None:
        self.simulation = Simulation(seed=1)
        self.client = self.simulation.client(store)
        self.scope = Scope(store, self.client.io, "n")

    def do(self, flow: Coroutine[Any, Any, Any]) -> None:
        self.simulation.spawn(self.client, flow)
        self.simulation.run()

    async def take(self, amount: int, *, speculative: bool = True) -> None:
        request = make_request("key", "api", {"rps": amount}, LIMITS)
        lease = await open_lease(self.scope, request, Terms(speculative=speculative))
        await end_lease(lease, failed=False)

    async def bucket(self) -> Bucket:
        return (await self.scope.store.buckets.read([HOME]))[HOME]


class SlowPost(MemoryStore):
    """The answer to one write is lost and tokens come back; later that write arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.deliver = self.buckets.write
        self.on_the_way: Write | None = None
        self.waits_for_one = False
        self.buckets.write = self.write  # type: ignore[method-assign]

    async def write(self, address: BucketAddress, write: Write) -> Outcome:
        if self.waits_for_one:
            self.waits_for_one, self.on_the_way = False, write
            await self.deliver(address, Adjust("a refund", write.at_ms, {"rps": -5 * MILLI}, 0))
            raise StorageUnavailable("no answer in time", ambiguous=True)
        return await self.deliver(address, write)


def test_a_write_that_arrives_after_another_took_its_place_does_not_charge_again() -> None:
    store = SlowPost()
    desk = Desk(store)

    async def story() -> None:
        await desk.take(5)
        store.waits_for_one = True
        await desk.take(1)
        assert store.on_the_way is not None
        await store.deliver(HOME, store.on_the_way)
        assert (await desk.bucket()).cells["rps"].consumed_milli == (5 - 5 + 1) * MILLI

    desk.do(story())


def test_who_looks_before_it_takes_sees_that_the_bucket_is_spread() -> None:
    desk = Desk(MemoryStore())
    desk.scope.store.buckets.metered = True  # type: ignore[misc]

    async def story() -> None:
        await desk.take(2)
        await split_shard(desk.scope, HOME, await desk.bucket())
        stranger = Desk(desk.scope.store)  # type: ignore[arg-type]
        await stranger.take(8, speculative=False)

    desk.do(story())
