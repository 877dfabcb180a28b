"""Buckets are spread over several items that are a partition of unity, whatever a client
believes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sharded import RPM, TPM, Bench, take
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.shards import MAX_SHARDS, sums_to_one
from zae_limiter.core.writes import Outcome, Write
from zae_limiter.flows.acquire.charge import ONE_WRITE_MILLI
from zae_limiter.flows.shards.holes import make_shard
from zae_limiter.flows.shards.items import read_all, split_shard
from zae_limiter.runtime.blocking import run
from zae_limiter.testing import Event, window_excess
from zae_limiter.testing.clock import START_MS


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_an_item_that_is_written_too_often_is_split(bench: Bench) -> None:
    for _ in range(1001):
        assert take(bench.limiter, rpm=1)
    assert len(bench.shards()) > 1
    assert sums_to_one(bucket.shard_count for bucket in bench.shards())
    assert bench.total("rpm") == (RPM.capacity - 1001) * 1000


def test_a_steady_rate_below_the_allowance_never_splits(bench: Bench) -> None:
    for step in range(5000):
        assert take(bench.limiter, rpm=1)
        # 750 a second.
        bench.clock.advance(0.001 if step % 3 else 0.002)
    assert len(bench.shards()) == 1


def test_a_rate_just_below_the_allowance_splits_before_it_is_too_late(bench: Bench) -> None:
    for _ in range(5000):
        assert take(bench.limiter, rpm=1)
        bench.clock.advance(0.001)
    assert len(bench.shards()) > 1


def test_an_item_that_is_used_up_is_not_split_however_often_it_is_written(bench: Bench) -> None:
    bench.limiter.set_system_defaults([Limit.per_second("rpm", 10_000)])
    assert take(bench.limiter, rpm=10_000)
    for _ in range(5000):
        bench.clock.advance(0.001)
        assert take(bench.limiter, rpm=10)
    (bucket,) = bench.shards()
    assert bucket.acquires == 5001


def test_the_write_that_succeeds_pays_for_lost_writes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    rivals = [bench.client(), bench.client()]
    sent = []
    carry_out = bench.store.buckets.write

    async def write(address: BucketAddress, write: Write) -> Outcome:
        sent.append(write)
        return await carry_out(address, write)

    monkeypatch.setattr(bench.store.buckets, "write", write)
    for _ in range(20):
        bench.clock.advance(1)
        assert all(take(rival, rpm=10) for rival in rivals)
    (bucket,) = bench.shards()
    assert bucket.acquires == 40 < len(sent)
    assert bucket.cells["wcu"].consumed_milli == len(sent) * ONE_WRITE_MILLI


def test_splitting_to_the_limit_under_load_makes_and_loses_nothing(bench: Bench) -> None:
    clients = [bench.client() for _ in range(3)]
    for step in range(4000):
        assert take(clients[step % 3], rpm=1, tpm=7)
    bench.split_to(MAX_SHARDS)
    assert len(bench.shards()) == MAX_SHARDS
    # A client that loses a race may pause, and tokens are gained in the meantime.
    passed_ms = bench.clock.now_ms() - START_MS
    for limit, taken in ((RPM, 4000), (TPM, 28_000)):
        gained_milli = bench.total(limit.name) - (limit.capacity - taken) * 1000
        assert 0 <= gained_milli <= passed_ms * limit.refill_rate
    assert bench.consumed("tpm") == 28_000_000
    assert sum(bucket.acquires for bucket in bench.shards()) == 4000


def test_a_full_item_at_the_limit_of_shards_is_written_all_the_same(bench: Bench) -> None:
    take(bench.limiter, rpm=1)
    bench.split_to(MAX_SHARDS)
    assert all(take(bench.limiter, rpm=1) for _ in range(40_000 // 8))
    assert len(bench.shards()) == MAX_SHARDS


@pytest.mark.parametrize("count", [2, 8, 32])
def test_a_request_larger_than_any_shard_is_taken_from_several(bench: Bench, count: int) -> None:
    take(bench.limiter, rpm=1)
    bench.split_to(count)
    with bench.client().acquire("key", "gpt-4", {"tpm": TPM.capacity * 3 // 10}) as lease:
        assert lease.consumed == {"tpm": TPM.capacity * 3 // 10}
    assert bench.total("tpm") == (TPM.capacity - TPM.capacity * 3 // 10) * 1000


def test_all_tokens_left_are_admitted_however_shards_hold_them(bench: Bench) -> None:
    take(bench.limiter, rpm=1)
    bench.split_to(8)
    for _ in range(7):
        assert take(bench.client(), tpm=100_000)
    left = bench.limiter.available("key", "gpt-4")["tpm"]
    assert left == TPM.capacity - 700_000
    assert not take(bench.client(), tpm=left + 1)
    assert take(bench.client(), tpm=left)


def test_a_request_above_the_capacity_of_all_shards_can_never_succeed(bench: Bench) -> None:
    take(bench.limiter, rpm=1)
    bench.split_to(4)
    with pytest.raises(RateLimitExceeded) as refused:
        bench.limiter.acquire("key", "gpt-4", {"tpm": TPM.capacity + 1}).__enter__()
    assert not refused.value.retryable


def test_retry_after_is_exact_over_shards_that_fill_at_different_times(bench: Bench) -> None:
    take(bench.limiter, rpm=1)
    bench.split_to(4)
    assert take(bench.limiter, tpm=900_000)
    bench.clock.advance(3.21)
    with pytest.raises(RateLimitExceeded) as refused:
        bench.limiter.acquire("key", "gpt-4", {"tpm": 990_000}).__enter__()
    wait_s = refused.value.retry_after_seconds
    assert bench.limiter.time_until_available("key", "gpt-4", {"tpm": 990_000}) == wait_s
    bench.clock.advance(wait_s - 0.001)
    assert not take(bench.limiter, tpm=990_000)
    bench.clock.advance(0.001)
    assert take(bench.limiter, tpm=990_000)


def test_a_failed_block_refunds_every_shard_that_it_took_from(bench: Bench) -> None:
    take(bench.limiter, rpm=1)
    bench.split_to(8)
    before = bench.shards()
    charged = []
    with (
        pytest.raises(ZeroDivisionError),
        bench.client().acquire("key", "gpt-4", {"tpm": 900_000}) as lease,
    ):
        charged.append(len(lease.entries) // 0)
    assert not charged
    assert len(lease.entries) > 1
    tokens = [bucket.cells["tpm"].tokens_milli for bucket in bench.shards()]
    assert tokens == [bucket.cells["tpm"].tokens_milli for bucket in before]
    assert bench.consumed("tpm") == 0


def test_a_release_goes_back_to_the_shards_it_came_from(bench: Bench) -> None:
    take(bench.limiter, rpm=1)
    bench.split_to(8)
    with bench.client().acquire("key", "gpt-4", {"tpm": 900_000}) as lease:
        lease.release(tpm=899_000)
        assert lease.consumed == {"tpm": 1000}
    assert bench.total("tpm") == (TPM.capacity - 1000) * 1000
    assert bench.consumed("tpm") == 1_000_000


def test_a_client_that_draws_a_missing_shard_creates_it(bench: Bench) -> None:
    take(bench.limiter, rpm=1)
    scope = bench.repository.scope
    for _ in range(3):
        run(split_shard(scope, bench.home, bench.items[bench.home]))
    made = run(make_shard(scope, bench.home._replace(shard=5)))
    assert made is not None
    assert sorted(bucket.shard for bucket in bench.shards()) == [0, 1, 2, 3, 4, 5]
    assert sums_to_one(bucket.shard_count for bucket in bench.shards())
    assert bench.total("rpm") == (RPM.capacity - 1) * 1000


def test_a_shard_that_was_deleted_comes_back_full_and_no_more(bench: Bench) -> None:
    take(bench.limiter, rpm=1)
    bench.split_to(4)
    gone = bench.home._replace(shard=2)
    del bench.store.buckets._tables.buckets[gone]
    run(make_shard(bench.repository.scope, gone))
    assert sums_to_one(bucket.shard_count for bucket in bench.shards())
    assert bench.total("rpm") <= RPM.capacity * 1000


def test_the_stored_state_can_be_asked_for_by_shard(bench: Bench) -> None:
    take(bench.limiter, rpm=1)
    bench.split_to(4)
    repository = bench.repository
    held = [bucket.cells["rpm"].tokens_milli for bucket in bench.shards()]
    for shard, tokens_milli in enumerate(held):
        state = repository.get_bucket("key", "gpt-4", "rpm", shard)
        assert state is not None
        assert state.tokens_milli == tokens_milli
        for states in (
            repository.get_buckets("key", shard_id=shard),
            repository.get_buckets("key", "gpt-4", shard),
        ):
            assert [s.tokens_milli for s in states if s.limit_name == "rpm"] == [tokens_milli]
    assert repository.get_bucket("key", "gpt-4", "rpm") == repository.get_bucket(
        "key", "gpt-4", "rpm", 0
    )
    assert repository.get_bucket("key", "gpt-4", "rpm", 4) is None
    assert len(repository.get_buckets("key")) == len(repository.get_buckets("key", "gpt-4")) == 8


def test_a_resource_counts_the_whole_capacity_of_a_split_bucket_once(bench: Bench) -> None:
    """While items adopt a changed limit one by one, item 0 stands for the bucket."""
    take(bench.limiter, rpm=1)
    bench.split_to(4)
    last = bench.home._replace(shard=3)
    late = bench.items[last]
    cell = late.cells["rpm"]
    older = cell._replace(rate=cell.rate._replace(ceiling_milli=7000))
    bench.items[last] = late._replace(cells={**late.cells, "rpm": older})
    found = bench.limiter.get_resource_capacity("gpt-4", "rpm")
    assert found.total_capacity == RPM.capacity
    assert [entity.capacity for entity in found.entities] == [RPM.capacity]


def test_a_limit_change_reaches_every_shard(bench: Bench) -> None:
    take(bench.limiter, rpm=1)
    bench.split_to(8)
    bench.limiter.set_system_defaults([Limit.per_minute("rpm", 80)])
    assert bench.limiter.available("key", "gpt-4") == {"rpm": 80}
    assert sum(take(bench.client(), rpm=1) for _ in range(100)) == 80


steps = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 40),
        st.sampled_from(["take", "take", "take", "split", "wait", "fail", "release"]),
    ),
    max_size=60,
)


@given(steps)
@settings(max_examples=60, deadline=None)
def test_no_history_of_takes_and_splits_breaks_the_window_theorem(
    tape: list[tuple[int, int, str]],
) -> None:
    bench = Bench()
    limit = Limit.custom("rpm", capacity=53, refill_amount=7, refill_period_seconds=3)
    bench.limiter.set_system_defaults([limit])
    clients = [bench.client() for _ in range(3)]
    history: list[Event] = []
    for who, amount, what in tape:
        if what == "wait":
            bench.clock.advance(amount / 7)
        elif what == "split" and 0 < len(bench.shards()) < 16:
            scope = clients[who].repository.scope
            items = run(read_all(scope, bench.home))
            address = sorted(items)[amount % len(items)]
            if items[address].shard_count < MAX_SHARDS:
                run(split_shard(scope, address, items[address]))
        elif what in ("take", "fail", "release"):
            _act(bench, clients[who], amount, what, history)
        assert not bench.shards() or sums_to_one(b.shard_count for b in bench.shards())
    excess = window_excess(
        history, capacity_milli=53_000, refill_amount_milli=7000, refill_period_ms=3000
    )
    assert excess <= 0


def _expect_short(client: SyncRateLimiter, amount: int) -> None:
    total = client.available("key", "gpt-4")["rpm"]
    assert total < amount, f"{amount} of {total} were refused"


def _act(
    bench: Bench, client: SyncRateLimiter, amount: int, what: str, history: list[Event]
) -> None:
    now_ms = bench.clock.now_ms()
    try:
        with client.acquire("key", "gpt-4", {"rpm": amount}) as lease:
            history.append(Event(now_ms, "rpm", amount * 1000, admitted=True))
            if what == "fail":
                raise LookupError
            if what == "release":
                lease.release(rpm=amount // 2)
    except RateLimitExceeded:
        _expect_short(client, amount)
        return
    except LookupError:
        history.append(Event(now_ms, "rpm", -amount * 1000, admitted=False))
        return
    if what == "release":
        history.append(Event(now_ms, "rpm", -(amount // 2) * 1000, admitted=False))
