"""This module is a bucket in several items, in memory, and clients that share it."""

from __future__ import annotations

from dataclasses import replace

from tests.support.partition import assert_partition
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.backends.memory import MemoryStore
from zae_limiter.core.bucket import Bucket, BucketAddress
from zae_limiter.flows.shards.items import read_all, split_shard
from zae_limiter.local.bounded import Bounded
from zae_limiter.runtime.blocking import run
from zae_limiter.testing import ManualClock

RPM = Limit.per_minute("rpm", 100_001)
TPM = Limit.per_minute("tpm", 1_000_003)


class Bench:
    """A bench is a metered store in memory, and clients that know nothing of each other."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.repository = SyncRepository.open(url="memory://", clock=self.clock)
        store = self.repository.scope.store
        assert isinstance(store, MemoryStore)
        self.store = store
        self.items = store.buckets._tables.buckets
        store.buckets.metered = True
        self.limiter = SyncRateLimiter(self.repository)
        self.limiter.set_system_defaults([RPM, TPM])
        self.home = BucketAddress(self.repository.namespace_id, "key", "gpt-4")

    def client(self) -> SyncRateLimiter:
        """Start another process: the same store, with empty caches."""
        here = self.repository.scope
        local = replace(
            here.local, images=Bounded(100), splits=Bounded(100), preferred_shards=Bounded(100)
        )
        scope = replace(here, local=local)
        return SyncRateLimiter(SyncRepository.on_scope(scope, "default", owns_store=False))

    def shards(self) -> list[Bucket]:
        """Return all items, read from the store and not from any client's memory."""
        found = run(self.repository.scope.store.buckets.of_entity(*self.home[:2]))
        return list(found.values())

    def in_force(self) -> list[Bucket]:
        """Return the items that count, which must be a partition of the bucket."""
        return assert_partition(self.shards())

    def split_to(self, count: int) -> None:
        """Split every item until there are so many."""
        scope = self.repository.scope
        while len(self.in_force()) < count:
            for address, bucket in run(read_all(scope, self.home)).items():
                if bucket.shard_count < count:
                    assert run(split_shard(scope, address, bucket))

    def total(self, name: str) -> int:
        """Tokens held by all items together, as stored, in millitokens."""
        return sum(bucket.cells[name].tokens_milli for bucket in self.shards())

    def consumed(self, name: str) -> int:
        """Tokens consumed from all items together, in millitokens."""
        return sum(bucket.cells[name].consumed_milli for bucket in self.shards())


def take(limiter: SyncRateLimiter, **amounts: int) -> bool:
    try:
        with limiter.acquire("key", "gpt-4", amounts):
            return True
    except RateLimitExceeded:
        return False
