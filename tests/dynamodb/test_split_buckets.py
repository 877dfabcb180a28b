"""Split buckets on a real server: items that are lost, deleted under load, in debt, and merged."""

from __future__ import annotations

import threading
import time

import pytest

from tests.support.partition import assert_partition
from tests.support.servers.chaos import Act, ChaosProxy, DropAnswer, Pass, Reset
from tests.support.servers.tables import OwnTable
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.backends.dynamodb.bucket_codec import bucket_key
from zae_limiter.backends.dynamodb.url import dynamodb_url
from zae_limiter.core.bucket import Bucket, BucketAddress
from zae_limiter.flows.shards.items import read_all, split_shard
from zae_limiter.runtime.blocking import run
from zae_limiter.testing import ManualClock

RPM = Limit.custom("rpm", capacity=1024, refill_amount=1, refill_period_seconds=10_000)
TTL_S = 60


class Client:
    """A client is one process: a repository with caches of its own."""

    def __init__(
        self, url: str, clock: ManualClock | None, shard: int = 0, ttl_s: int = TTL_S
    ) -> None:
        self.repository = SyncRepository.open(url=url, clock=clock, config_cache_ttl=ttl_s)
        self.limiter = SyncRateLimiter(self.repository, default_limits=[RPM])
        self.scope = self.repository.scope
        self.home = BucketAddress(self.repository.namespace_id, "key", "gpt-4")
        self.scope.local.preferred_shards.put(self.home, shard)

    def take(self, amount: int = 1) -> bool:
        try:
            with self.limiter.acquire("key", "gpt-4", {"rpm": amount}):
                return True
        except RateLimitExceeded:
            return False

    def split_to(self, count: int) -> None:
        assert self.take()
        while len(found := run(read_all(self.scope, self.home))) < count:
            for address, bucket in found.items():
                assert run(split_shard(self.scope, address, bucket))

    def in_force(self) -> list[Bucket]:
        """Return the items that count, which must be a partition of the bucket."""
        return assert_partition(run(self.scope.store.buckets.of_entity(*self.home[:2])).values())


def test_a_bucket_whose_first_item_was_lost_is_whole_again_within_the_ttl(table: OwnTable) -> None:
    clock = ManualClock()
    old = [Client(table.url, clock, shard) for shard in (3, 5)]
    old[0].split_to(8)
    assert all(client.take() for client in old)
    table.call("DeleteItem", Key=bucket_key(old[0].home))
    new = Client(table.url, clock)
    assert new.take()
    clock.advance(TTL_S + 1)
    assert all(client.take() for client in old)
    assert [bucket.shard_count for bucket in new.in_force()] == [1]
    assert sum(client.take(128) for _ in range(9) for client in old) == 7


def test_a_bucket_in_debt_admits_nothing_and_is_merged_with_its_debt(table: OwnTable) -> None:
    clock = ManualClock()
    clients = [Client(table.url, clock, shard) for shard in range(4)]
    clients[0].split_to(4)
    assert all(client.take() for client in clients)
    with clients[3].limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
        lease.adjust(rpm=3978)
    assert not any(client.take() for client in clients)
    for _ in range(3):
        clock.advance(TTL_S + 1)
        assert not any(client.take() for client in clients)
    (whole,) = clients[0].in_force()
    assert whole.cells["rpm"].tokens_milli // 1000 == 1024 - 3984


@pytest.mark.parametrize("fault", [DropAnswer(), Reset()], ids=["lost answer", "reset"])
def test_one_fault_while_items_are_merged_keeps_every_token(
    fault: Act, proxy: ChaosProxy, table: OwnTable
) -> None:
    url = dynamodb_url(table.name, table.server.region, proxy.url)
    clock = ManualClock()
    for moment in range(12):
        proxy.use(())
        client = Client(url, clock, 1)
        client.limiter.delete_entity("key")
        client.split_to(4)
        assert client.take(100)
        clock.advance(TTL_S + 1)
        assert client.take()
        clock.advance(TTL_S + 1)
        proxy.use([*[Pass()] * moment, fault])
        assert client.take()
        proxy.use(())
        client.in_force()
        assert client.limiter.available("key", "gpt-4") == {"rpm": 1024 - 103}


@pytest.mark.slow
def test_deletions_under_load_leave_a_partition(table: OwnTable) -> None:
    clients = [Client(table.url, None, 5 * n, ttl_s=1) for n in range(3)]
    is_over = threading.Event()

    def load(client: Client) -> None:
        while not is_over.is_set():
            client.take()

    threads = [threading.Thread(target=load, args=(client,)) for client in clients]
    operator = Client(table.url, None, ttl_s=1)
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            operator.split_to(8)
            operator.limiter.delete_entity("key")
            time.sleep(0.2)
            operator.scope.local.splits.clear()
        operator.split_to(8)
        time.sleep(1.5)
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    for client in clients:
        client.take()
    operator.in_force()
