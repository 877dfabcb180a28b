"""Only several items together can serve these requests, while other clients write to all of
them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import pytest

from tests.support.sharded import TPM, Bench, take
from zae_limiter import RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.core.bucket import Bucket, BucketAddress, refill, take_tokens
from zae_limiter.core.exceptions import StorageUnavailable
from zae_limiter.core.limit import MILLI
from zae_limiter.core.shards import MAX_SHARDS, sums_to_one
from zae_limiter.core.writes import Granted, Outcome, Write
from zae_limiter.flows.acquire.send import Addressed
from zae_limiter.flows.shards.items import read_all, split_shard
from zae_limiter.flows.shards.known_split import KnownSplit
from zae_limiter.runtime.blocking import run

Act = Callable[[Bucket, int], Bucket]


def nibble(name: str, amount: int) -> Act:
    """Take a little without a refill."""
    return lambda bucket, now_ms: take_tokens(bucket, {name: amount * MILLI}, 1)


def refilled(bucket: Bucket, now_ms: int) -> Bucket:
    return refill(bucket, now_ms)


def nibble_after_refill(name: str, amount: int) -> Act:
    return lambda bucket, now_ms: nibble(name, amount)(refill(bucket, now_ms), now_ms)


class Rivals:
    """Rivals are clients that write to every item a moment before any transaction arrives, and to
    an item before every other write to it alone."""

    def __init__(self, bench: Bench, act: Act) -> None:
        self._bench = bench
        self._act = act
        self._write, self._write_all = bench.store.buckets.write, bench.store.buckets.write_all
        self._turns = count()
        self.is_store_busy = False
        self.is_relentless = False
        self.steps = 0
        bench.store.buckets.write = self.write  # type: ignore[method-assign]
        bench.store.buckets.write_all = self.write_all  # type: ignore[method-assign]

    def meddle(self, addresses: Sequence[BucketAddress]) -> None:
        self._bench.clock.advance(0.005)
        items = self._bench.items
        for address in addresses:
            if address in items:
                items[address] = self._act(items[address], self._bench.clock.now_ms())

    async def write(self, address: BucketAddress, write: Write) -> Outcome:
        if self.is_relentless or next(self._turns) % 2 == 0:
            self.meddle([address])
        return await self._write(address, write)

    async def write_all(self, writes: Sequence[Addressed]) -> list[Outcome]:
        self.steps += 1
        self.meddle(list(self._bench.items))
        if self.is_store_busy:
            raise StorageUnavailable("others are writing to it")
        return await self._write_all(writes)


@pytest.fixture
def bench() -> Bench:
    """Return a bench of eight items, none of which covers the request alone."""
    made = Bench()
    take(made.limiter, rpm=1)
    made.split_to(8)
    return made


def test_stored_tokens_are_taken_in_one_transaction_despite_refills(bench: Bench) -> None:
    for address, bucket in list(bench.items.items()):
        bench.items[address] = nibble("tpm", 60_000)(bucket, 0)
    rivals = Rivals(bench, refilled)
    assert take(bench.client(), tpm=300_000)
    assert rivals.steps == 1
    assert bench.consumed("tpm") == (8 * 60_000 + 300_000) * MILLI


@pytest.mark.parametrize("act", [nibble("tpm", 1000), nibble_after_refill("tpm", 1000)])
def test_takings_of_other_clients_do_not_refuse_a_request_that_fits(bench: Bench, act: Act) -> None:
    Rivals(bench, act)
    assert take(bench.client(), tpm=TPM.capacity // 2)


def test_refills_of_a_limit_beside_a_full_one_do_not_refuse_a_large_request(bench: Bench) -> None:
    """A full limit can only be taken from by a write that refills, and such writes conflict each
    time."""
    Rivals(bench, nibble_after_refill("rpm", 1))
    with bench.client().acquire("key", "gpt-4", {"tpm": TPM.capacity * 9 // 10}) as lease:
        assert len(lease.entries) > 1
        assert lease.consumed == {"tpm": TPM.capacity * 9 // 10}
    assert bench.consumed("tpm") == TPM.capacity * 9 // 10 * MILLI


def test_items_are_charged_one_by_one_where_transactions_conflict(
    bench: Bench,
) -> None:
    Rivals(bench, refilled).is_store_busy = True
    acquires = sum(bucket.acquires for bucket in bench.shards())
    assert take(bench.client(), tpm=TPM.capacity * 9 // 10)
    assert bench.consumed("tpm") == TPM.capacity * 9 // 10 * MILLI
    assert sum(bucket.acquires for bucket in bench.shards()) == acquires + 1


def test_tokens_of_some_items_are_given_back_if_the_rest_is_short(bench: Bench) -> None:
    """Other clients take so much while the items are charged one by one that the request is
    refused."""
    taken_by_others: list[int] = []

    def grab(bucket: Bucket, now_ms: int) -> Bucket:
        if rivals.steps == 0 or bucket.cells["tpm"].consumed_milli or len(taken_by_others) == 4:
            return bucket
        amount_milli = bucket.cells["tpm"].tokens_milli
        taken_by_others.append(amount_milli)
        return take_tokens(bucket, {"tpm": amount_milli}, 1)

    rivals = Rivals(bench, grab)
    rivals.is_store_busy = True
    with pytest.raises(RateLimitExceeded) as refused:
        bench.client().acquire("key", "gpt-4", {"tpm": TPM.capacity * 3 // 4}).__enter__()
    assert len(taken_by_others) == 4
    assert bench.consumed("tpm") == sum(taken_by_others)
    assert 0 < refused.value.retry_after_seconds < 60
    bench.clock.advance(refused.value.retry_after_seconds)
    assert take(bench.client(), tpm=TPM.capacity * 3 // 4)


def test_a_lost_answer_while_items_are_charged_one_by_one_counts_once(
    bench: Bench,
) -> None:
    rivals = Rivals(bench, refilled)
    rivals.is_store_busy = True
    deliver = bench.store.buckets.write
    lost: list[BucketAddress] = []

    async def lose_the_third(address: BucketAddress, write: Write) -> Outcome:
        outcome = await deliver(address, write)
        if isinstance(outcome, Granted) and rivals.steps:
            lost.append(address)
            if len(lost) == 3:
                raise StorageUnavailable("no answer in time", ambiguous=True)
        return outcome

    bench.store.buckets.write = lose_the_third  # type: ignore[method-assign]
    assert take(bench.client(), tpm=TPM.capacity * 3 // 4)
    assert len(lost) > 3
    assert bench.consumed("tpm") == TPM.capacity * 3 // 4 * MILLI


def test_all_tokens_left_in_a_bucket_are_admitted_once(bench: Bench) -> None:
    assert take(bench.client(), tpm=TPM.capacity // 2)
    Rivals(bench, lambda bucket, now_ms: bucket).is_store_busy = True
    left = bench.limiter.available("key", "gpt-4")["tpm"]
    assert take(bench.client(), tpm=left)
    assert not take(bench.client(), tpm=left)


def test_a_bucket_that_is_deleted_during_a_charge_starts_anew(bench: Bench) -> None:
    client = bench.client()
    assert client.available("key", "gpt-4")["tpm"] == TPM.capacity
    read = bench.store.buckets.read

    async def vanish(addresses: Sequence[BucketAddress]) -> dict[BucketAddress, Bucket]:
        if len(addresses) == 8:
            bench.items.clear()
        return await read(addresses)

    bench.store.buckets.read = vanish  # type: ignore[method-assign]
    assert take(client, tpm=TPM.capacity * 3 // 4)
    assert bench.total("tpm") == (TPM.capacity - TPM.capacity * 3 // 4) * MILLI
    with pytest.raises(RateLimitExceeded) as refused:
        client.acquire("key", "gpt-4", {"tpm": TPM.capacity}).__enter__()
    assert refused.value.retryable


@pytest.mark.parametrize("shard", [0, 3, 7])
def test_an_item_that_was_deleted_comes_back_when_it_is_needed(bench: Bench, shard: int) -> None:
    del bench.items[bench.home._replace(shard=shard)]
    assert take(bench.limiter, rpm=1)
    assert take(bench.limiter, tpm=TPM.capacity * 95 // 100)
    assert sums_to_one(bucket.shard_count for bucket in bench.shards())


def test_an_item_too_busy_to_be_split_is_charged_itself() -> None:
    bench = Bench()
    take(bench.limiter, rpm=1)
    bench.split_to(2)
    run(split_shard(bench.repository.scope, bench.home, bench.items[bench.home]))
    rivals = Rivals(bench, nibble_after_refill("rpm", 1))
    client = bench.client()
    local = client.repository.scope.local
    local.splits.put(bench.home, KnownSplit(MAX_SHARDS, bench.shards()[0].generation))
    local.preferred_shards.put(bench.home, MAX_SHARDS - 1)
    assert all(take(client, tpm=1) for _ in range(8))
    assert rivals.steps > 0
    assert len(bench.shards()) == 3


def test_a_read_of_all_items_ends_though_an_item_is_missing(bench: Bench) -> None:
    del bench.items[bench.home._replace(shard=5)]
    read, reads = bench.store.buckets.read, count()

    async def counted(addresses: Sequence[BucketAddress]) -> dict[BucketAddress, Bucket]:
        next(reads)
        return await read(addresses)

    bench.store.buckets.read = counted  # type: ignore[method-assign]
    assert len(run(read_all(bench.repository.scope, bench.home))) == 7
    assert next(reads) == 2


def test_a_client_that_loses_every_race_fails_and_holds_nothing(bench: Bench) -> None:
    """Rivals are always faster, at every item, which no store with several clients does to one of
    them."""
    rivals = Rivals(bench, nibble_after_refill("rpm", 1))
    rivals.is_relentless = True
    with pytest.raises(RateLimiterUnavailable, match="too contended"):
        bench.client().acquire("key", "gpt-4", {"tpm": TPM.capacity // 2}).__enter__()
    assert bench.consumed("tpm") == 0
