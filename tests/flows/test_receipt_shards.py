"""Receipts of buckets that are split over several items."""

from __future__ import annotations

import pytest

from tests.support.sharded import RPM, TPM, Bench
from zae_limiter import LeaseExpiredError, RateLimitExceeded, SyncLease, SyncRateLimiter
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.limit import MILLI, LimitSet
from zae_limiter.core.planner import Intent
from zae_limiter.flows.shards.merge import merge_down
from zae_limiter.runtime.blocking import run


@pytest.fixture
def bench() -> Bench:
    """A bucket in four items."""
    bench = Bench()
    with bench.limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass
    bench.split_to(4)
    return bench


def reserve(limiter: SyncRateLimiter, key: str | None = None, **amounts: int) -> SyncLease:
    return limiter.reserve("key", "gpt-4", amounts, idempotency_key=key, lease_ttl=60)


def merge_all(bench: Bench) -> None:
    """Merge all items into one, in another process than that of the clients."""
    intent = Intent(LimitSet.of([RPM, TPM]), {}, 0, None, None, False, True)
    run(merge_down(bench.repository.scope, bench.home, intent, 1))


@pytest.mark.parametrize("rpm", [0, 1, 25_000, 60_000, 100_000])
def test_a_charge_takes_from_as_many_items_as_it_needs(bench: Bench, rpm: int) -> None:
    for client in (bench.client(), bench.limiter):
        lease = reserve(client, rpm=rpm, tpm=rpm)
        assert bench.consumed("rpm") == (rpm + 1) * MILLI
        lease.release()
        assert bench.consumed("rpm") == MILLI
        assert bench.consumed("tpm") == 0
    assert bench.in_force()


def test_a_charge_is_refused_by_the_sum_of_all_items(bench: Bench) -> None:
    lease = reserve(bench.limiter, rpm=90_000)
    with pytest.raises(RateLimitExceeded) as refusal:
        reserve(bench.client(), "k", rpm=10_001)
    wait_s = refusal.value.retry_after_seconds
    assert 0 < wait_s < 1
    bench.clock.advance(wait_s)
    reserve(bench.client(), "k", rpm=10_001).commit()
    lease.commit()


def test_debt_of_one_item_holds_back_a_charge_of_another(bench: Bench) -> None:
    lease = reserve(bench.limiter, rpm=1)
    lease.commit(rpm=RPM.capacity * 2)
    with pytest.raises(RateLimitExceeded):
        reserve(bench.client(), rpm=1)


def test_a_token_is_ended_after_its_items_were_merged(bench: Bench) -> None:
    token = reserve(bench.limiter, rpm=60_000, tpm=10).token()
    merge_all(bench)
    client = bench.client()
    SyncLease.from_token(client, token).commit(rpm=5)
    assert bench.consumed("rpm") == 6 * MILLI
    assert bench.consumed("tpm") == 10 * MILLI
    with pytest.raises(LeaseExpiredError):
        SyncLease.from_token(bench.limiter, token)


@pytest.mark.parametrize("lease_ttl", [None, 60], ids=["plain", "with a receipt"])
@pytest.mark.parametrize("shard", range(4))
def test_a_correction_beyond_its_item_is_charged_after_another_process_merged_them(
    bench: Bench, shard: int, lease_ttl: float | None
) -> None:
    client = bench.client()
    client.reserve("key", "gpt-4", {"rpm": 0}).commit()
    client.scope.local.preferred_shards.put(bench.home, shard)
    lease = client.reserve("key", "gpt-4", {"rpm": 0}, lease_ttl=lease_ttl)
    assert lease.entries[0].address.shard == shard
    merge_all(bench)
    lease.commit(rpm=30_000)
    (whole,) = bench.in_force()
    assert whole.cells["rpm"].tokens_milli == (RPM.capacity - 30_001) * MILLI


def test_a_token_is_ended_after_its_item_was_split(bench: Bench) -> None:
    lease = reserve(bench.limiter, rpm=60_000)
    bench.split_to(16)
    SyncLease.from_token(bench.client(), lease.token()).release()
    assert bench.consumed("rpm") == MILLI
    assert bench.total("rpm") <= RPM.capacity * MILLI


def test_a_repeat_of_a_charge_of_several_items_is_served_once_all_are_empty(bench: Bench) -> None:
    first = reserve(bench.limiter, "k", rpm=100_000)
    repeat = reserve(bench.client(), "k", rpm=100_000)
    assert repeat.is_repeat
    first.release()
    assert bench.consumed("rpm") == 100_001 * MILLI
    repeat.release()
    assert bench.consumed("rpm") == MILLI


def test_a_bucket_that_was_deleted_as_a_whole_is_charged_anew(bench: Bench) -> None:
    for address in list(bench.items):
        if address.home == bench.home:
            del bench.items[address]
    lease = reserve(bench.limiter, rpm=100_001)
    assert list(bench.items) == [BucketAddress(*bench.home)]
    lease.commit()


def test_a_level_that_is_split_and_one_that_is_not_are_charged_together(bench: Bench) -> None:
    bench.limiter.create_entity("child", parent_id="key", cascade=True)
    client = bench.client()
    lease = client.reserve("child", "gpt-4", {"rpm": 60_000}, lease_ttl=60)
    assert {entry.address.entity_id for entry in lease.entries} == {"child", "key"}
    assert len(lease.entries) > 2
    lease.consume(rpm=20_000)
    with pytest.raises(RateLimitExceeded):
        lease.consume(rpm=20_001)
    lease.release()
    assert bench.consumed("rpm") == MILLI
