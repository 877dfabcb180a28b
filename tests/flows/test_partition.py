"""Whatever is deleted, lost or restored of a bucket, its parts in force sum to exactly one after
every client has looked, and it admits its capacity: no token more, and none less."""

from __future__ import annotations

from random import Random

import pytest

from tests.attacks.effort import effort, note_tried
from tests.support.sharded import Bench, take
from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.core.bucket import Bucket, BucketAddress
from zae_limiter.core.shards import MAX_SHARDS
from zae_limiter.flows.shards.items import read_all, split_shard
from zae_limiter.runtime.blocking import run
from zae_limiter.testing import Event, window_excess

LIMIT = Limit.custom("rpm", capacity=53, refill_amount=7, refill_period_seconds=3)
TTL_S = 60
STEPS = 14
MISHAPS = ("split", "split", "split", "lose", "lose first", "restore", "delete", "expire", "charge")


class Tale:
    """A tale is a bucket, some clients, what befalls the bucket, and what it admitted since."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.bench = Bench()
        self.bench.limiter.set_system_defaults([LIMIT])
        self.clients = [self.bench.client() for _ in range(3)]
        self.old: list[tuple[BucketAddress, Bucket]] = []
        self.history: list[Event] = []

    def step(self) -> None:
        mishap = self.rng.choice(MISHAPS)
        self.old += self.bench.items.items()
        if mishap == "split":
            self._split()
        elif mishap in ("lose", "lose first"):
            self._lose(0 if mishap == "lose first" else self.rng.randrange(MAX_SHARDS))
        elif mishap == "restore" and self.old:
            address, bucket = self.rng.choice(self.old)
            self.bench.items[address] = bucket
            self._forget_readings()
        elif mishap == "delete":
            self.bench.limiter.delete_entity("key")
        elif mishap == "expire":
            self._expire()
        elif mishap == "charge":
            self._charge()
        # What clients do before they have looked counts for a bucket that is intact.
        is_intact = mishap in ("split", "expire")
        self.burst(exact=False)
        if is_intact:
            self.assert_no_excess()
        self.mend()
        self.history = []
        self.burst(exact=True)
        self.assert_no_excess()

    def _split(self) -> None:
        scope = self.rng.choice(self.clients).repository.scope
        items = run(read_all(scope, self.bench.home))
        splittable = [address for address in sorted(items) if items[address].shard_count < 16]
        if splittable:
            address = self.rng.choice(splittable)
            run(split_shard(scope, address, items[address]))

    def _lose(self, shard: int) -> None:
        self.bench.items.pop(self.bench.home._replace(shard=shard), None)

    def _forget_readings(self) -> None:
        """Items that come back are not what the store counted usage of."""
        readings = self.bench.store.buckets._tables.readings
        for address in self.bench.items.keys() - readings.keys():
            readings[address] = next(iter(readings.values()))

    def _expire(self) -> None:
        """Drop what is expired by then, as a store may at any moment."""
        self.bench.clock.advance(self.rng.choice((170, 4000)))
        now_ms = self.bench.clock.now_ms()
        expired = [a for a, item in self.bench.items.items() if item.is_expired(now_ms)]
        for address in expired:
            del self.bench.items[address]

    def _charge(self) -> None:
        """Charge more than the bucket can hold, and give most of it back."""
        client = self.rng.choice(self.clients)
        if not take(client, rpm=1):
            return
        self.bench.clock.advance(30)
        with client.acquire("key", "gpt-4", {"rpm": 1}) as lease:
            lease.adjust(rpm=self.rng.choice((20, 60, 90)))

    def mend(self) -> None:
        """Let the caches of all clients become stale, and each of them use the bucket."""
        for _ in range(2):
            self.bench.clock.advance(TTL_S + 1)
            for client in self.clients:
                take(client, rpm=1)
        self.bench.in_force()
        self.bench.clock.advance(TTL_S / 2)

    def burst(self, *, exact: bool) -> None:
        """Let all clients take what they can get, at once."""
        started_ms = self.bench.clock.now_ms()
        admitted = sum(self._take(client) for _ in range(30) for client in self.clients)
        passed_ms = self.bench.clock.now_ms() - started_ms
        if exact:
            most = LIMIT.capacity + passed_ms * LIMIT.refill_rate / 1000
            assert LIMIT.capacity <= admitted <= most, f"{admitted} of {LIMIT.capacity}"

    def _take(self, client: SyncRateLimiter) -> bool:
        admitted = take(client, rpm=1)
        if admitted:
            self.history.append(Event(self.bench.clock.now_ms(), "rpm", 1000, admitted=True))
        return admitted

    def assert_no_excess(self) -> None:
        excess = window_excess(
            self.history, capacity_milli=53_000, refill_amount_milli=7000, refill_period_ms=3000
        )
        assert excess <= 0


def tell(seed: int) -> None:
    tale = Tale(seed)
    for _ in range(STEPS):
        tale.step()


def test_the_parts_in_force_sum_to_one_after_every_mishap() -> None:
    for seed in range(12):
        tell(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(12, effort(132, 412), 40))
def test_the_parts_in_force_sum_to_one_after_any_mishap(first: int) -> None:
    for seed in range(first, first + 40):
        tell(seed)
    note_tried("mishaps of split buckets", 40 * STEPS)
