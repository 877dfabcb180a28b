"""Items of a split bucket belong together by a generation, share the bucket's debt, and are merged
when the load is gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.support.sharded import Bench, take
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.core.bucket import BucketAddress, refill
from zae_limiter.core.shards import RETIRED
from zae_limiter.core.writes import Outcome, Write
from zae_limiter.flows.acquire.send import Addressed
from zae_limiter.flows.config.cache import ConfigCache
from zae_limiter.flows.shards.items import read_all, split_shard
from zae_limiter.runtime.blocking import run

TTL_S = 60
MANY = Limit.custom("rpm", capacity=100_000, refill_amount=80, refill_period_seconds=1)
EIGHTY = Limit.per_second("rpm", 80)


def sharded(limit: Limit, count: int) -> Bench:
    """Return a bucket with one limit, split into so many items, of which one was taken."""
    bench = Bench()
    bench.limiter.set_system_defaults([limit])
    assert take(bench.limiter, rpm=1)
    bench.split_to(count)
    return bench


def knowing(bench: Bench, shard: int | None = None) -> SyncRateLimiter:
    """Return a client that has read all items, and prefers one of them."""
    client = bench.client()
    scope = client.repository.scope
    run(read_all(scope, bench.home))
    if shard is not None:
        scope.local.preferred_shards.put(bench.home, shard)
    return client


def admitted(clients: Sequence[SyncRateLimiter], bench: Bench, seconds: int) -> int:
    """Count what clients get that try, in turn, ten times as often as the limit allows."""
    count = 0
    for _ in range(seconds * 40):
        for client in clients:
            count += sum(take(client, rpm=1) for _ in range(20 // len(clients)))
        bench.clock.advance(0.025)
    return count


def lose(bench: Bench, *shards: int) -> None:
    for shard in shards:
        del bench.items[bench.home._replace(shard=shard)]


def pass_ttl(bench: Bench, *clients: SyncRateLimiter) -> None:
    """Let the caches of these clients become stale, and each of them use the bucket."""
    bench.clock.advance(TTL_S + 1)
    for client in clients:
        take(client, rpm=1)


def test_a_bucket_whose_first_item_was_lost_keeps_its_rate() -> None:
    bench = sharded(EIGHTY, 8)
    old, new = [knowing(bench, shard) for shard in (3, 5)], bench.client()
    assert all(take(client, rpm=1) for client in old)
    lose(bench, 0)
    assert take(new, rpm=1)
    pass_ttl(bench, *old)
    bench.in_force()
    assert admitted([*old, new], bench, seconds=5) <= 80 + 5 * 80


def test_a_client_that_knows_the_split_restores_a_lost_first_item() -> None:
    bench = sharded(EIGHTY, 8)
    client = knowing(bench, 0)
    generation = bench.shards()[0].generation
    lose(bench, 0)
    assert take(client, rpm=1)
    assert {bucket.generation for bucket in bench.in_force()} == {generation}
    assert len(bench.in_force()) == 8


def test_two_clients_that_fill_overlapping_holes_make_no_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = sharded(EIGHTY, 8)
    one, other = knowing(bench, 3), knowing(bench, 7)
    lose(bench, 3, 7)
    write_all = bench.store.buckets.write_all
    write = bench.store.buckets.write

    def meanwhile() -> None:
        monkeypatch.undo()
        assert take(other, rpm=1)

    async def write_all_later(writes: Sequence[Addressed]) -> list[Outcome]:
        meanwhile()
        return await write_all(writes)

    async def write_later(address: BucketAddress, change: Write) -> Outcome:
        if "Create" in type(change).__name__:
            meanwhile()
        return await write(address, change)

    monkeypatch.setattr(bench.store.buckets, "write_all", write_all_later)
    monkeypatch.setattr(bench.store.buckets, "write", write_later)
    assert take(one, rpm=1)
    assert sum(1 / bucket.shard_count for bucket in bench.shards()) == 1
    bench.in_force()


def test_a_bucket_in_debt_admits_nothing_at_any_item() -> None:
    limit = Limit.custom("rpm", capacity=1024, refill_amount=1, refill_period_seconds=1)
    bench = sharded(limit, 16)
    with knowing(bench, 5).acquire("key", "gpt-4", {"rpm": 1}) as lease:
        lease.adjust(rpm=3978)
    clients = [knowing(bench, shard) for shard in range(16)]
    assert bench.total("rpm") == (1024 - 3980) * 1000
    assert sum(take(client, rpm=1) for client in clients for _ in range(2)) == 0
    assert bench.limiter.available("key", "gpt-4") == {"rpm": 1024 - 3980}
    bench.clock.advance(3980 - 1024)
    assert not any(take(client, rpm=1) for client in clients)
    bench.clock.advance(16)
    assert sum(take(client, rpm=1) for client in clients for _ in range(2)) == 16


def test_a_refund_to_a_bucket_in_debt_admits_nothing_before_the_debt_is_paid() -> None:
    limit = Limit.custom("rpm", capacity=1024, refill_amount=1, refill_period_seconds=1)
    bench = sharded(limit, 8)
    with knowing(bench, 3).acquire("key", "gpt-4", {"rpm": 100}) as lease:
        with knowing(bench, 5).acquire("key", "gpt-4", {"rpm": 1}) as other:
            other.adjust(rpm=2000)
        assert bench.total("rpm") == (1024 - 2102) * 1000
        lease.release(rpm=100)
    assert bench.total("rpm") == (1024 - 2002) * 1000
    assert bench.consumed("rpm") == 2002 * 1000
    assert not any(take(knowing(bench, shard), rpm=1) for shard in range(8))


def test_a_debt_that_the_bucket_can_pay_is_paid_by_all_items() -> None:
    limit = Limit.custom("rpm", capacity=1024, refill_amount=1, refill_period_seconds=1)
    bench = sharded(limit, 8)
    with knowing(bench, 5).acquire("key", "gpt-4", {"rpm": 1}) as lease:
        lease.adjust(rpm=600)
    assert bench.total("rpm") == (1024 - 602) * 1000
    assert all(bucket.cells["rpm"].tokens_milli >= 0 for bucket in bench.shards())
    clients = [knowing(bench, shard) for shard in range(8)]
    assert sum(take(client, rpm=1) for client in clients for _ in range(60)) == 1024 - 602


def test_no_item_of_a_bucket_in_debt_expires_before_the_debt_is_paid() -> None:
    limit = Limit.custom("rpm", capacity=80, refill_amount=8, refill_period_seconds=1)
    bench = sharded(limit, 4)
    with knowing(bench, 3).acquire("key", "gpt-4", {"rpm": 1}) as lease:
        lease.adjust(rpm=8000)
    bench.clock.advance(900)
    assert not any(bucket.is_expired(bench.clock.now_ms()) for bucket in bench.in_force())


def test_items_are_merged_when_the_load_is_gone() -> None:
    bench = sharded(MANY, 8)
    client = knowing(bench, 5)
    for _ in range(4):
        pass_ttl(bench, client)
    (whole,) = bench.in_force()
    assert (whole.shard, whole.shard_count, whole.generation) == (0, 1, "")
    assert bench.limiter.available("key", "gpt-4") == {"rpm": 100_000 - 1}
    assert {bucket.generation for bucket in bench.shards()} == {"", RETIRED}
    assert all(bucket.expires_at_s is not None for bucket in bench.shards())


def test_a_merge_keeps_every_token_and_every_count() -> None:
    slow = Limit.custom("rpm", capacity=100_003, refill_amount=1, refill_period_seconds=1000)
    bench = sharded(slow, 8)
    clients = [knowing(bench, shard) for shard in range(8)]
    assert all(take(client, rpm=100 + n) for n, client in enumerate(clients))
    taken = 1 + sum(range(100, 108))
    for _ in range(3):
        bench.clock.advance(TTL_S + 1)
        assert take(clients[0], rpm=1)
        taken += 1
    now_ms = bench.clock.now_ms()
    (whole,) = bench.in_force()
    assert refill(whole, now_ms).cells["rpm"].tokens_milli == 100_003_000 - taken * 1000 + 183
    assert bench.consumed("rpm") == taken * 1000
    assert sum(bucket.acquires for bucket in bench.shards()) == 12


def test_items_that_are_written_often_are_not_merged() -> None:
    bench = sharded(MANY, 4)
    clients = [knowing(bench, shard) for shard in range(4)]
    # 2,000 writes a second: more than two items can take.
    for _ in range(3 * TTL_S):
        for client in clients:
            bench.clock.advance(0.0005)
            assert take(client, rpm=1)
            scope = client.repository.scope
            for shard in range(4):
                _count_writes(bench, shard, 125)
        bench.clock.advance(0.998)
    assert len(bench.in_force()) == 4
    assert scope.local.shard_count(bench.home) == 4


def _count_writes(bench: Bench, shard: int, writes: int) -> None:
    """Let others write to an item, so far as its own count of writes shows."""
    address = bench.home._replace(shard=shard)
    item = bench.items[address]
    wcu = item.cells["wcu"]
    used = wcu._replace(consumed_milli=wcu.consumed_milli + writes * 1250)
    bench.items[address] = item._replace(cells={**item.cells, "wcu": used})


def test_a_refund_finds_the_item_that_took_over_a_merged_part() -> None:
    bench = sharded(MANY, 8)
    client = knowing(bench, 5)
    with knowing(bench, 7).acquire("key", "gpt-4", {"rpm": 1000}) as lease:
        for _ in range(4):
            pass_ttl(bench, client)
        assert len(bench.in_force()) == 1
        lease.release(rpm=1000)
    assert bench.consumed("rpm") == 5 * 1000


def test_clients_that_know_the_old_shards_go_on_after_a_merge() -> None:
    bench = sharded(MANY, 8)
    clients = [knowing(bench, shard) for shard in range(8)]
    assert all(take(client, rpm=1) for client in clients)
    for _ in range(3):
        pass_ttl(bench, clients[0])
    assert len(bench.in_force()) == 1
    assert all(take(client, rpm=1) for client in clients)
    assert len(bench.in_force()) == 1


def test_a_split_after_a_merge_begins_another_generation() -> None:
    bench = sharded(MANY, 2)
    first = bench.shards()[0].generation
    client = knowing(bench)
    for _ in range(3):
        pass_ttl(bench, client)
    assert len(bench.in_force()) == 1
    scope = bench.repository.scope
    assert run(split_shard(scope, bench.home, bench.in_force()[0]))
    generations = {bucket.generation for bucket in bench.in_force()}
    assert len(generations) == 1
    assert generations.isdisjoint({"", first, RETIRED})


def test_an_old_item_that_was_put_back_does_not_count_and_is_retired() -> None:
    bench = sharded(MANY, 8)
    client = knowing(bench, 5)
    old = dict(bench.items)
    for _ in range(4):
        pass_ttl(bench, client)
    bench.split_to(2)
    put_back = bench.home._replace(shard=5)
    bench.items[put_back] = old[put_back]
    assert len(bench.in_force()) == 2
    bench.items[bench.home._replace(shard=1)] = old[bench.home._replace(shard=1)]
    pass_ttl(bench, knowing(bench, 1))
    assert len(bench.in_force()) == 2


def test_an_old_first_item_that_was_put_back_is_the_bucket_within_the_ttl() -> None:
    bench = sharded(EIGHTY, 1)
    old = bench.items[bench.home]
    bench.split_to(8)
    clients = [knowing(bench, shard) for shard in range(8)]
    assert all(take(client, rpm=1) for client in clients)
    bench.items[bench.home] = old
    pass_ttl(bench, *clients)
    assert bench.in_force() == [bench.items[bench.home]]
    assert admitted(clients, bench, seconds=2) <= 80 + 2 * 80


def test_items_of_a_split_bucket_expire_after_they_are_full() -> None:
    bench = sharded(EIGHTY, 4)
    lifetimes = [bucket.expires_at_s for bucket in bench.shards()]
    assert None not in lifetimes
    first, *others = [lifetime for lifetime in lifetimes if lifetime is not None]
    assert min(others) < max(others) == first


def test_the_first_item_outlives_its_siblings_while_they_are_in_use() -> None:
    bench = sharded(EIGHTY, 4)
    bench.repository.scope.local.config_cache.ttl_ms = 10**9
    client = knowing(bench, 3)
    for _ in range(60):
        bench.clock.advance(120)
        assert take(client, rpm=1)
        for address, bucket in list(bench.items.items()):
            if bucket.is_expired(bench.clock.now_ms()):
                assert address != bench.home
                del bench.items[address]
    bench.in_force()


def test_a_client_with_stale_limits_does_not_put_them_in_force_by_a_merge() -> None:
    bench = sharded(MANY, 4)
    client = knowing(bench, 3)
    scope = client.repository.scope
    local = replace(scope.local, config_cache=ConfigCache(TTL_S))
    stale = SyncRateLimiter(
        SyncRepository.on_scope(replace(scope, local=local), "default", owns_store=False)
    )
    pass_ttl(bench, stale)
    bench.clock.advance(TTL_S / 2)
    bench.limiter.set_system_defaults([EIGHTY])
    for shard in range(4):
        assert take(knowing(bench, shard), rpm=1)
    bench.clock.advance(TTL_S / 2 - 1)
    known = local.splits.get(bench.home)
    assert known is not None
    local.splits.put(bench.home, known._replace(looked_at_ms=None))
    assert take(stale, rpm=1)
    assert [bucket.cells["rpm"].capacity_milli for bucket in bench.in_force()] == [80_000]
