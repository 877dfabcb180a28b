"""Writes that meet at a bucket item are sent as one, and no outcome shows it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.crowd import Crowd, Gate, crowd, in_line, in_thread, take, until, wait_of
from tests.support.drivers import Driver, limiter_on
from zae_limiter import Limit, SyncRateLimiter, SyncRepository, ValidationError
from zae_limiter.backends.memory import MemoryStore
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.limit import LimitSet
from zae_limiter.core.writes import Fill, Refill, Take, Write
from zae_limiter.flows.acquire.charge import ONE_WRITE_MILLI
from zae_limiter.flows.shards.items import read_all, split_shard
from zae_limiter.runtime.blocking import BlockingIo
from zae_limiter.runtime.parallel import Threads

RPM = Limit.per_minute("rpm", 6000)
SMALL = Limit.per_minute("rpm", 60)


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'limits.db'}"


async def test_callers_that_come_during_a_write_share_the_next_write(
    driver: Driver, url: str
) -> None:
    async with crowd(driver, url, [RPM]) as it:
        await take(it.limiter, rpm=0)
        it.buckets.writes.clear()
        assert all(await it.meet(*(take(it.limiter, rpm=1) for _ in range(50))))
        assert it.buckets.written() == 2
        bucket = await it.bucket()
        assert bucket.cells["rpm"].tokens_milli == (6000 - 50) * 1000
        assert bucket.cells["rpm"].consumed_milli == 50_000
        assert bucket.acquires == 51


async def test_an_item_has_one_write_under_way_at_a_time(driver: Driver, url: str) -> None:
    async with crowd(driver, url, [RPM]) as it:
        names = ("key-1", "key-2", "key-3")
        works = [take(it.limiter, names[n % 3], rpm=1) for n in range(150)]
        assert all(await asyncio.gather(*map(it.call, works)))
        assert it.buckets.most_under_way == 1
        for name in names:
            assert (await it.bucket(name)).acquires == 50


async def test_without_coalescing_each_acquire_is_a_write(driver: Driver, url: str) -> None:
    async with crowd(driver, url, [RPM], coalesce=False) as it:
        await take(it.limiter, rpm=0)
        it.buckets.writes.clear()
        assert all(await it.meet(*(take(it.limiter, rpm=1) for _ in range(20))))
        assert it.buckets.written() == 20
        assert (await it.bucket()).acquires == 21


async def test_a_caller_that_comes_alone_writes_at_once(driver: Driver, url: str) -> None:
    async with crowd(driver, url, [RPM], linger_ms=1000) as it:
        await take(it.limiter, rpm=1)
        it.buckets.writes.clear()
        start_ms = it.clock.now_ms()
        for _ in range(10):
            assert await take(it.limiter, rpm=1)
        assert it.buckets.written() == 10
        assert it.clock.now_ms() == start_ms


async def test_buckets_do_not_wait_for_each_other(driver: Driver, url: str) -> None:
    async with crowd(driver, url, [RPM]) as it:
        first = await it.at_gate(take(it.limiter, rpm=1))
        second = it.call(take(it.limiter, "key-2", rpm=1))
        await until(lambda: it.buckets.under_way[it.home("key-2")] == 1)
        it.buckets.gate.open()
        assert all(await asyncio.gather(first, second))


async def family(it: Crowd, children: int) -> list[str]:
    """Entities that cascade to one parent, each with a bucket already."""
    await it.limiter.create_entity("org")
    names = [f"child-{number}" for number in range(children)]
    for name in names:
        await it.limiter.create_entity(name, parent_id="org", cascade=True)
        await take(it.limiter, name, rpm=0)
    it.buckets.writes.clear()
    return names


async def test_children_share_the_writes_of_their_parent(driver: Driver, url: str) -> None:
    async with crowd(driver, url, [RPM]) as it:
        names = await family(it, 20)
        # Parents are charged last, so the children are through when the gate is closed.
        first = await it.at_gate(take(it.limiter, "org", rpm=1), it.home("org"))
        it.buckets.gate_for = {"org"}
        works = [it.call(take(it.limiter, name, rpm=1)) for name in names]
        await until(lambda: it.in_line(it.home("org")) == 20)
        it.buckets.gate.open()
        assert all(await asyncio.gather(first, *works))
        assert it.buckets.written("org") == 2
        assert (await it.bucket("org")).cells["rpm"].consumed_milli == 21_000
        for name in names:
            assert (await it.bucket(name)).cells["rpm"].consumed_milli == 1000


async def test_children_share_the_writes_of_their_parent_in_threads(tmp_path: Path) -> None:
    """The driver has few threads of its own; callers bring theirs."""
    async with crowd("blocking", "memory://", [RPM]) as it:
        object.__setattr__(it.scope, "io", BlockingIo(it.clock, Threads()))
        names = await family(it, 20)
        first = await it.at_gate(take(it.limiter, "org", rpm=1), it.home("org"))
        it.buckets.gate_for = {"org"}
        works = [it.call(take(it.limiter, name, rpm=1)) for name in names]
        await until(lambda: it.in_line(it.home("org")) >= 18)
        it.buckets.gate.open()
        assert all(await asyncio.gather(first, *works))
        assert it.buckets.written("org") <= 4


async def test_only_charges_under_equal_limits_share_a_write(driver: Driver, url: str) -> None:
    async with crowd(driver, url, [RPM]) as it:
        await take(it.limiter, rpm=0)
        it.buckets.writes.clear()
        other = [Limit.per_minute("rpm", 5000)]

        async def override() -> bool:
            async with it.limiter.acquire("key-1", "gpt-4", {"rpm": 1}, other):
                return True

        works = [override() if n % 2 else take(it.limiter, rpm=1) for n in range(21)]
        assert all(await it.meet(*works))
        assert (await it.bucket()).cells["rpm"].consumed_milli == 21_000
        # Once refused, because the item has other limits, and once in force.
        fingerprint = LimitSet.of(other).fingerprint
        assert sum(fingerprint_of(write) == fingerprint for _, write in it.buckets.writes) == 2


def fingerprint_of(write: Write) -> str | None:
    """Return the fingerprint of the limits that a write charges under."""
    match write:
        case Take() | Fill():
            return write.fingerprint
        case Refill():
            return write.after.fingerprint
        case _:
            return None


async def test_the_first_callers_are_admitted_and_later_ones_learn_their_wait(
    driver: Driver, url: str
) -> None:
    async with crowd(driver, url, [SMALL]) as it:
        await take(it.limiter, rpm=30)
        waits = await it.meet(*(wait_of(it.limiter, rpm=n) for n in (10, 8, 15, 9, 3, 2, 61)))
        # 20 left after the first: 8, 9, 3 fit, 15 and 2 do not, 61 never will.
        assert waits == [0, 0, 15, 0, 0, 2, float("inf")]
        assert await it.tokens() == 0
        assert (await it.bucket()).acquires == 5


async def test_a_refused_sum_costs_two_writes_and_a_hopeless_one_none(
    driver: Driver, url: str
) -> None:
    async with crowd(driver, url, [SMALL]) as it:
        await take(it.limiter, rpm=30)
        it.buckets.writes.clear()
        admitted = await it.meet(*(take(it.limiter, rpm=1) for _ in range(50)))
        assert sum(admitted) == 30
        assert admitted == [True] * 30 + [False] * 20
        assert it.buckets.written() <= 4


async def test_limits_that_block_in_different_ways_are_walked_together(
    driver: Driver, url: str
) -> None:
    limits = [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 600)]
    async with crowd(driver, url, limits) as it:
        await take(it.limiter, rpm=57, tpm=400)
        asked = [{"rpm": 1}, {"tpm": 150}, {"rpm": 1, "tpm": 60}, {"rpm": 1, "tpm": 50}, {"rpm": 1}]
        waits = await it.meet(*(wait_of(it.limiter, "key-1", **amounts) for amounts in asked))
        assert waits == [0, 0, 6, 0, 0]
        cells = (await it.bucket()).cells
        assert (cells["rpm"].tokens_milli, cells["tpm"].tokens_milli) == (0, 0)


async def test_a_caller_is_not_refused_for_a_charge_that_is_refused_in_the_end(
    driver: Driver, url: str
) -> None:
    """With 10 tokens left, a charge of 8 would fit and then one of 5 would not; but another process
    takes 5 meanwhile."""
    async with crowd(driver, url, [SMALL], refusal_cache_ttl=0) as it:
        await take(it.limiter, rpm=50)
        other, writes = it.other(), 0

        async def snatch(address: BucketAddress, write: Write) -> None:
            nonlocal writes
            writes += 1
            if writes == 1:
                await take(other, rpm=5)

        it.buckets.after = snatch
        admitted = await it.meet(*(take(it.limiter, rpm=n) for n in (0, 8, 5)))
        assert admitted == [True, False, True]
        assert await it.tokens() == 0


async def test_charges_that_will_not_fit_are_not_sent(driver: Driver, url: str) -> None:
    async with crowd(driver, url, [SMALL], refusal_cache_ttl=0) as it:
        await take(it.limiter, rpm=50)
        it.buckets.writes.clear()
        admitted = await it.meet(*(take(it.limiter, rpm=n) for n in (0, 8, 5, 2, 1)))
        assert admitted == [True, True, False, True, False]
        assert it.buckets.written() == 2


async def test_tokens_gained_during_a_write_do_not_admit_waiting_charges(
    driver: Driver, url: str
) -> None:
    """Otherwise no request would be refused by a limit that gains tokens with every round trip."""
    async with crowd(driver, url, [SMALL], refusal_cache_ttl=0) as it:
        await take(it.limiter, rpm=60)
        it.clock.advance(5)

        async def pass_time(address: BucketAddress, write: Write) -> None:
            it.clock.advance(1)

        it.buckets.after = pass_time
        admitted = await it.meet(*(take(it.limiter, rpm=n) for n in (0, *[1] * 9)))
        assert admitted == [True] * 7 + [False] * 3


async def test_corrections_that_meet_share_a_write(driver: Driver, url: str) -> None:
    async with crowd(driver, url, [RPM]) as it:
        await take(it.limiter, rpm=0)
        inside = [it.limiter.acquire("key-1", "gpt-4", {"rpm": 10}) for _ in range(20)]
        leases = [await held.__aenter__() for held in inside]
        for number, lease in enumerate(leases):
            await _now(lease.adjust(rpm=number - 10))
        it.buckets.writes.clear()
        await it.meet(
            *(held.__aexit__(None, None, None) for held in inside if held is not inside[10])
        )
        assert it.buckets.written() == 2
        assert (await it.bucket()).cells["rpm"].consumed_milli == sum(range(20)) * 1000


async def _now(result: Any) -> None:
    if asyncio.iscoroutine(result):
        await result


async def test_refunds_that_meet_share_a_write_and_return_their_acquires(
    driver: Driver, url: str
) -> None:
    async with crowd(driver, url, [RPM]) as it:
        await take(it.limiter, rpm=0)
        inside = [it.limiter.acquire("key-1", "gpt-4", {"rpm": 10}) for _ in range(20)]
        for held in inside:
            await held.__aenter__()
        it.buckets.writes.clear()
        failed = LookupError()
        await it.meet(*(held.__aexit__(LookupError, failed, None) for held in inside))
        assert it.buckets.written() == 2
        bucket = await it.bucket()
        assert (bucket.acquires, bucket.cells["rpm"].consumed_milli) == (1, 0)
        assert bucket.cells["rpm"].tokens_milli == 6_000_000


async def test_further_consumption_of_leases_shares_a_write(driver: Driver, url: str) -> None:
    async with crowd(driver, url, [RPM]) as it:
        inside = [it.limiter.acquire("key-1", "gpt-4", {"rpm": 1}) for _ in range(10)]
        leases = [await held.__aenter__() for held in inside]
        it.buckets.writes.clear()
        await it.meet(*(lease.consume(rpm=2) for lease in leases))
        assert it.buckets.written() == 2
        bucket = await it.bucket()
        assert (bucket.acquires, bucket.cells["rpm"].consumed_milli) == (10, 30_000)
        for held in inside:
            await held.__aexit__(None, None, None)


async def test_each_caller_refunds_its_own_part_of_a_shared_write(driver: Driver, url: str) -> None:
    async with crowd(driver, url, [RPM]) as it:
        await take(it.limiter, rpm=0)

        async def work(amount: int) -> None:
            async with it.limiter.acquire("key-1", "gpt-4", {"rpm": amount}) as lease:
                assert lease.consumed == {"rpm": amount}
                if amount % 2:
                    raise LookupError

        await it.meet(*(work(n) for n in range(10)))
        bucket = await it.bucket()
        assert bucket.cells["rpm"].consumed_milli == sum(range(0, 10, 2)) * 1000
        assert bucket.acquires == 1 + 5


async def test_new_limits_of_an_item_are_adopted_by_a_whole_batch_at_once(
    driver: Driver, url: str
) -> None:
    """Another process has changed the limits while many callers waited: the leader reads them once,
    and the batch goes on together."""
    async with crowd(driver, url, [RPM]) as it:
        await take(it.limiter, rpm=0)
        other = it.other()
        await other.set_system_defaults([Limit.per_minute("rpm", 50)])
        await take(other, rpm=0)
        it.buckets.writes.clear()
        misses = it.scope.local.config_cache.misses
        outcomes = await it.meet(*(take(it.limiter, rpm=1) for _ in range(60)))
        assert outcomes == [True] * 50 + [False] * 10
        # One write finds the new limits, and one goes by them, for the first caller and for the
        # callers behind it, which do not all fit.
        assert it.buckets.written() <= 5
        assert it.scope.local.config_cache.misses - misses == 2 * 4
        assert await it.tokens() == 0


async def test_a_caller_that_brought_limits_of_its_own_keeps_them(driver: Driver, url: str) -> None:
    """Callers in the same queue that brought no limits adopt the new ones."""
    async with crowd(driver, url, [RPM]) as it:
        await take(it.limiter, rpm=0)
        other = it.other()
        await other.set_system_defaults([Limit.per_minute("rpm", 50)])
        await take(other, rpm=0)

        async def bring(amount: int) -> bool:
            async with it.limiter.acquire("key-1", "gpt-4", {"rpm": amount}, limits=[RPM]):
                return True

        works = [
            take(it.limiter, rpm=1),
            take(it.limiter, rpm=51),
            bring(2),
            take(it.limiter, rpm=3),
        ]
        it.buckets.writes.clear()
        assert await it.meet(*works) == [True, False, True, True]
        bucket = await it.bucket()
        assert bucket.cells["rpm"].consumed_milli == 6000
        restamps = [w for _, w in it.buckets.writes if isinstance(w, Refill)]
        assert LimitSet.of([RPM]).fingerprint in [w.after.fingerprint for w in restamps]
        assert bucket.fingerprint != LimitSet.of([RPM]).fingerprint


async def test_only_the_caller_that_asks_for_a_removed_limit_fails(
    driver: Driver, url: str
) -> None:
    """Another process has changed the limits; a caller that asks for a removed limit fails, and no
    other caller does."""
    limits = [RPM, Limit.per_minute("tpm", 100)]
    async with crowd(driver, url, limits) as it:
        await take(it.limiter, rpm=0)
        other = it.other()
        await other.set_system_defaults([Limit.per_minute("rpm", 50)])
        await take(other, rpm=0)
        asked = [{"rpm": 0}, {"rpm": 1}, {"tpm": 1}, {"rpm": 48}, {"rpm": 2}]
        outcomes = await it.meet(*(take(it.limiter, "key-1", **amounts) for amounts in asked))
        assert [type(o) for o in outcomes] == [bool, bool, ValidationError, bool, bool]
        assert [o for o in outcomes if isinstance(o, bool)] == [True, True, True, False]
        assert await it.tokens() == 1000


async def test_a_caller_left_out_of_a_batch_adopts_the_new_limits(driver: Driver, url: str) -> None:
    """A single charge is sent first, since the bucket was last seen to be short for the others, and
    it finds the new limits."""
    async with crowd(driver, url, [RPM, Limit.per_minute("tpm", 100)]) as it:
        await take(it.limiter, tpm=100)
        other = it.other()

        async def change(address: BucketAddress, write: Write) -> None:
            it.buckets.after = None
            await other.set_system_defaults([Limit.per_minute("rpm", 50)])
            await take(other, rpm=0)

        it.buckets.after = change
        asked = [{"rpm": 0}, {"rpm": 1}, {"tpm": 1}]
        first, second, third = await it.meet(*(take(it.limiter, "key-1", **a) for a in asked))
        assert (first, second) == (True, True)
        assert isinstance(third, ValidationError)


async def test_a_batch_lingers_for_followers_if_asked_to(
    driver: Driver, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that comes while a batch lingers becomes a follower."""
    async with crowd(driver, url, [RPM], linger_ms=300) as it:
        await take(it.limiter, rpm=0)
        it.buckets.writes.clear()
        time_passes, waits_s = Gate(driver), list[float]()
        time_passes.close()

        async def pause(seconds: float) -> None:
            waits_s.append(seconds)
            await time_passes.passed()

        monkeypatch.setattr(it.scope.io, "pause", pause)
        first = await it.at_gate(take(it.limiter, rpm=1))
        pilot = await it.behind(take(it.limiter, rpm=1))
        it.buckets.gate.open()
        assert await first
        await until(lambda: waits_s == [0.3])
        later = await it.behind(*(take(it.limiter, rpm=1) for _ in range(3)))
        assert not pilot[0].done()
        time_passes.open()
        assert await asyncio.gather(*pilot, *later) == [True] * 4
        assert it.buckets.written() == 2


@pytest.mark.parametrize("count", [2, 8])
async def test_items_of_one_bucket_have_write_queues_of_their_own(
    driver: Driver, count: int
) -> None:
    async with crowd(driver, "memory://", [RPM]) as it:
        store = it.origin.scope.store
        assert isinstance(store, MemoryStore)
        store.buckets.metered = True
        await take(it.limiter, rpm=0)
        while len(await read_all(it.scope, it.home())) < count:
            for address, bucket in (await read_all(it.scope, it.home())).items():
                await split_shard(it.scope, address, bucket)
        it.buckets.writes.clear()
        works = [take(it.limiter, rpm=1) for _ in range(200)]
        assert all(await asyncio.gather(*map(it.call, works)))
        assert it.buckets.most_under_way == 1
        items = (
            await store.buckets.read([it.home()._replace(shard=n) for n in range(count)])
        ).values()
        assert sum(item.acquires for item in items) == 201
        assert sum(item.cells["rpm"].consumed_milli for item in items) == 200_000
        assert sum(item.cells["rpm"].tokens_milli for item in items) == 5_800_000
        # A write spends of the item's own allowance once, however many share it.
        spent = sum(1_000_000 - item.cells["wcu"].tokens_milli for item in items)
        assert spent <= (len(it.buckets.writes) + count) * ONE_WRITE_MILLI


async def test_callers_that_meet_are_admitted_all_that_several_items_hold(driver: Driver) -> None:
    async with crowd(driver, "memory://", [SMALL]) as it:
        store = it.origin.scope.store
        assert isinstance(store, MemoryStore)
        store.buckets.metered = True
        await take(it.limiter, rpm=0)
        for _ in range(2):
            for address, bucket in (await read_all(it.scope, it.home())).items():
                await split_shard(it.scope, address, bucket)
        works = [take(it.limiter, rpm=7) for _ in range(12)]
        admitted = await asyncio.gather(*map(it.call, works))
        assert sum(admitted) == 60 // 7
        items = await read_all(it.scope, it.home())
        assert sum(item.cells["rpm"].tokens_milli for item in items.values()) == 4000


async def test_a_real_file_needs_fewer_writes_than_calls(tmp_path: Path) -> None:
    """The first write is held up until all threads have come; then they meet by chance."""
    with SyncRepository.open(url=f"sqlite:///{tmp_path / 'limits.db'}") as repository:
        limiter = SyncRateLimiter(repository, default_limits=[RPM])
        with limiter.acquire("key-1", "gpt-4", {"rpm": 0}):
            pass
        scope = repository.scope
        home = BucketAddress(scope.namespace_id, "key-1", "gpt-4")
        gate, writes, write = Gate("blocking"), 0, scope.store.buckets.write
        gate.close()

        async def counted(address: BucketAddress, planned: Write) -> Any:
            nonlocal writes
            writes += 1
            await gate.passed()
            return await write(address, planned)

        scope.store.buckets.write = counted  # type: ignore[method-assign,assignment]

        async def work() -> None:
            for _ in range(10):
                with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
                    pass

        calls = [in_thread(work()) for _ in range(40)]
        await until(lambda: in_line(scope, home) == 39)
        gate.open()
        await asyncio.gather(*calls)
        state = repository.get_bucket("key-1", "gpt-4", "rpm")
        assert state is not None
        assert state.total_consumed_milli == 400_000
        # The 39 that waited went in one write, whatever the others did.
        assert writes <= 400 - 38


async def test_charges_without_speculative_writes_share_a_write(driver: Driver, url: str) -> None:
    async with crowd(driver, url, [RPM]) as it:
        await take(it.limiter, rpm=0)
        it.buckets.writes.clear()
        limiter = limiter_on(it.repository, speculative_writes=False)
        assert all(await it.meet(*(take(limiter, rpm=1) for _ in range(20))))
        assert it.buckets.written() == 2
