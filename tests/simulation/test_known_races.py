"""Races that seeds have found, each as short as possible."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.backends.memory import MemoryStore
from zae_limiter.core.bucket import Bucket, BucketAddress
from zae_limiter.core.exceptions import StorageUnavailable
from zae_limiter.core.limit import MILLI
from zae_limiter.core.writes import Adjust, Outcome, Write
from zae_limiter.flows.acquire.lease import end_lease, open_lease
from zae_limiter.flows.acquire.lease_record import LeaseTerms
from zae_limiter.flows.acquire.request import make_request
from zae_limiter.flows.scope import Scope, Settings
from zae_limiter.flows.shards.items import split_shard
from zae_limiter.testing import ManualClock
from zae_limiter.testing.simulation import Simulation

from .properties import deltas_milli

LIMITS = [Limit.per_day("rpd", 1, burst=10)]
HOME = BucketAddress("n", "key", "api")


class Desk:
    """A desk is a client of a store without delays, with a log of its answers."""

    def __init__(self, store: MemoryStore, simulation: Simulation | None = None) -> None:
        self.simulation = simulation or Simulation(seed=1)
        self.client = self.simulation.client(store)
        self.store = store
        self.scope = Scope(store, self.client.io, "n", Settings(coalesces=True))
        self.log: list[str] = []

    def do(self, *flows: Coroutine[Any, Any, Any]) -> list[str]:
        for flow in flows:
            self.simulation.spawn(self.client, flow)
        self.simulation.run()
        return self.log

    async def take(self, amount: int, *, after_ms: int = 0, speculative: bool = True) -> None:
        await self.client.io.pause(after_ms / 1000)
        request = make_request("key", "api", {"rpd": amount}, LIMITS, speculative=speculative)
        try:
            lease = await open_lease(self.scope, request, LeaseTerms())
        except RateLimitExceeded:
            self.log.append(f"{amount} refused")
        else:
            await end_lease(lease, failed=False)
            self.log.append(f"{amount} taken")

    async def bucket(self) -> Bucket:
        return (await self.store.buckets.read([HOME]))[HOME]


class SlowPost(MemoryStore):
    """The answer to one write is lost and tokens come back; later that write arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.deliver = self.buckets.write
        self.on_the_way: Write | None = None
        self.loses_the_next = False
        self.buckets.write = self.write  # type: ignore[method-assign]

    async def write(self, address: BucketAddress, write: Write) -> Outcome:
        if self.loses_the_next:
            self.loses_the_next, self.on_the_way = False, write
            await self.deliver(address, Adjust("a refund", write.at_ms, {"rpd": -5 * MILLI}, 0))
            raise StorageUnavailable("no answer in time", ambiguous=True)
        return await self.deliver(address, write)


def test_a_write_that_arrives_after_another_took_its_place_does_not_charge_again() -> None:
    store = SlowPost()
    desk = Desk(store)

    async def story() -> None:
        await desk.take(5)
        store.loses_the_next = True
        await desk.take(1)
        assert store.on_the_way is not None
        await store.deliver(HOME, store.on_the_way)
        assert (await desk.bucket()).cells["rpd"].consumed_milli == (5 - 5 + 1) * MILLI

    desk.do(story())


def test_a_client_that_reads_before_it_takes_sees_all_shards() -> None:
    desk = Desk(MemoryStore())
    desk.store.buckets.metered = True
    stranger = Desk(desk.store, desk.simulation)

    async def story() -> None:
        await desk.take(2)
        await split_shard(desk.scope, HOME, await desk.bucket())
        await stranger.take(8, speculative=False)

    desk.do(story())
    assert stranger.log == ["8 taken"]


class Rival(MemoryStore):
    """A rival store: writes take a while; and just before four tokens are taken, another client
    takes two."""

    def __init__(self) -> None:
        super().__init__()
        self.deliver = self.buckets.write
        self.simulation = Simulation(seed=1)
        self.clock = self.simulation.client(self).io
        self.has_come = False
        self.buckets.write = self.write  # type: ignore[method-assign]

    async def write(self, address: BucketAddress, write: Write) -> Outcome:
        await self.clock.wait_ms(5)
        if not self.has_come and deltas_milli(write) == {"rpd": 4 * MILLI}:
            self.has_come = True
            await self.deliver(address, Adjust("a rival", write.at_ms, {"rpd": 2 * MILLI}, 0))
        return await self.deliver(address, write)


def test_a_request_is_not_refused_for_one_that_is_refused_in_the_end() -> None:
    store = Rival()
    desk = Desk(store, store.simulation)
    desk.do(desk.take(5), desk.take(4, after_ms=1), desk.take(3, after_ms=2))
    assert sorted(desk.log) == ["3 taken", "4 refused", "5 taken"]


def test_a_queued_flow_that_is_discarded_does_not_block_its_bucket() -> None:
    desk = Desk(MemoryStore())
    assert desk.scope.local.write_queues.start(HOME, desk)
    in_line = desk.take(1)
    for _ in range(3):
        in_line.send(None)
    in_line.close()
    desk.scope.local.write_queues.leave(HOME, desk)
    assert desk.do(desk.take(2)) == ["2 taken"]


def test_a_parent_refunds_nothing_of_a_limit_that_it_got_after_the_charge() -> None:
    clock = ManualClock()
    with SyncRepository.open(url="memory://", clock=clock) as repository:
        limiter = SyncRateLimiter(repository)
        rpd, tpd = Limit.per_day("rpd", 1, burst=10), Limit.per_day("tpd", 1, burst=10)
        repository.create_entity("company")
        repository.create_entity("key", parent_id="company", cascade=True)
        repository.set_limits("key", [rpd, tpd])
        repository.set_limits("company", [tpd])
        with limiter.acquire("key", "api", {"rpd": 2, "tpd": 1}) as lease:
            repository.set_limits("company", [rpd, tpd])
            clock.advance(61)
            with limiter.acquire("company", "api", {"rpd": 5}):
                pass
            lease.consume(tpd=1)
            lease.release(rpd=2)
        assert limiter.available("company", "api") == {"rpd": 5, "tpd": 8}
