"""A lease may outlive its bucket: a correction that charges makes it anew, with the debt."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.support.drivers import EMBEDDED, World, balance, limiter_on, take
from tests.support.servers.tables import OwnTable
from tests.support.sharded import RPM, Bench
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository
from zae_limiter.backends.dynamodb.bucket_codec import bucket_key
from zae_limiter.backends.memory import MemoryStore
from zae_limiter.backends.memory.readings import forget
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.writes import Adjust, Outcome, Write
from zae_limiter.flows.shards.items import prefer

TPS = Limit.per_second("tps", 1000)
LONG_S = 3600


async def expire(world: World, *entities: str) -> None:
    """Let a long time pass, and let the store drop what has expired by then."""
    world.clock.advance(LONG_S)
    for entity_id in entities:
        await _drop(world, BucketAddress(world.repository.namespace_id, entity_id, "gpt-4"))


async def _drop(world: World, address: BucketAddress) -> None:
    found = await world.scope.store.buckets.read([address])
    assert all(bucket.is_expired(world.clock.now_ms()) for bucket in found.values())
    if isinstance(world.place, OwnTable):
        # The server's own clock is not the test's, so its TTL cannot do this.
        world.place.call("DeleteItem", Key=bucket_key(address))
    elif isinstance(world.scope.store, MemoryStore):
        forget(world.scope.store.buckets._tables, lambda each: each == address)
    else:
        # The first call of another entity sweeps what has expired.
        await take(world.limiter(), f"beside-{address.entity_id}", limits=[TPS], tps=1)
        with closing(sqlite3.connect(world.path)) as db:
            key = (address.entity_id,)
            assert not db.execute("SELECT * FROM buckets WHERE entity_id = ?", key).fetchall()


async def used(repository: Repository, entity_id: str = "key-1") -> int:
    """All that the usage of an entity says was consumed."""
    page = await repository.get_usage_snapshots(entity_id, "gpt-4", window_type="hourly")
    return sum(snapshot.counters.get("tps", 0) for snapshot in page[0])


async def test_a_correction_that_charges_makes_an_expired_bucket_anew(
    limiter: RateLimiter, world: World
) -> None:
    async with limiter.acquire("key-1", "gpt-4", {"tps": 100}, limits=[TPS]) as lease:
        await expire(world, "key-1")
        await lease.adjust(tps=50_000)
    assert await limiter.available("key-1", "gpt-4", [TPS]) == {"tps": -49_000}
    with pytest.raises(RateLimitExceeded) as refused:
        await take(limiter, limits=[TPS], tps=1)
    assert refused.value.retry_after_seconds == pytest.approx(49.001)
    world.clock.advance(48)
    await take(limiter, "another", limits=[TPS], tps=1)
    with pytest.raises(RateLimitExceeded):
        await take(limiter, limits=[TPS], tps=1)


async def test_a_correction_that_gives_back_leaves_an_expired_bucket_away(
    limiter: RateLimiter, world: World
) -> None:
    async with limiter.acquire("key-1", "gpt-4", {"tps": 100}, limits=[TPS]) as lease:
        await expire(world, "key-1")
        await lease.adjust(tps=-50)
    assert await balance(world.repository) == {}


async def test_a_refund_leaves_an_expired_bucket_away(limiter: RateLimiter, world: World) -> None:
    async def fail() -> None:
        async with limiter.acquire("key-1", "gpt-4", {"tps": 100}, limits=[TPS]):
            await expire(world, "key-1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await balance(world.repository) == {}


async def test_a_correction_makes_the_expired_buckets_of_all_levels_anew(
    limiter: RateLimiter, world: World
) -> None:
    repository = world.repository
    await repository.set_system_defaults([TPS])
    await repository.create_entity("org")
    await repository.create_entity("key-1", parent_id="org", cascade=True)
    async with limiter.acquire("key-1", "gpt-4", {"tps": 100}) as lease:
        await expire(world, "key-1", "org")
        await lease.adjust(tps=50_000)
    assert await balance(repository, "org") == {"tps": -49_000_000}
    assert await balance(repository, "key-1") == {"tps": -49_000_000}
    address = BucketAddress(repository.namespace_id, "key-1", "gpt-4")
    made = (await world.scope.store.buckets.read([address]))[address]
    assert (made.parent_id, made.cascade) == ("org", True)


async def test_a_correction_of_two_limits_makes_an_expired_bucket_anew_with_both(
    limiter: RateLimiter, world: World
) -> None:
    limits = [TPS, Limit.per_second("rps", 10)]
    async with limiter.acquire("key-1", "gpt-4", {"tps": 100, "rps": 5}, limits=limits) as lease:
        await expire(world, "key-1")
        await lease.adjust(tps=3000, rps=-2)
    assert await balance(world.repository) == {"tps": -2_000_000, "rps": 10_000}


async def test_corrections_that_meet_at_an_expired_bucket_all_charge_it(world: World) -> None:
    limiter = world.limiter()
    other = limiter_on(await world.open()) if world.is_shared else limiter
    async with (
        limiter.acquire("key-1", "gpt-4", {"tps": 1}, limits=[TPS]) as first,
        other.acquire("key-1", "gpt-4", {"tps": 1}, limits=[TPS]) as second,
    ):
        await expire(world, "key-1")
        await first.adjust(tps=2000)
        await second.adjust(tps=3000)
    assert await balance(world.repository) == {"tps": -4_000_000}


async def test_a_correction_charges_a_limit_that_its_bucket_has_forgotten(
    limiter: RateLimiter, world: World
) -> None:
    day, other = Limit.per_day("day", 100), Limit.per_second("other", 10)
    async with limiter.acquire("key-1", "gpt-4", {"day": 1}, limits=[day]) as lease:
        await take(limiter, limits=[other], other=1)
        world.clock.advance(86_400)
        await take(limiter, limits=[other], other=1)
        await lease.adjust(day=150)
    assert await limiter.available("key-1", "gpt-4", [day]) == {"day": -50}
    assert await limiter.available("key-1", "gpt-4", [other]) == {"other": 9}
    with pytest.raises(RateLimitExceeded):
        await take(limiter, limits=[day], day=1)


@pytest.mark.parametrize("store_kind", EMBEDDED, indirect=True)
async def test_usage_counts_a_correction_of_an_expired_bucket(
    limiter: RateLimiter, world: World
) -> None:
    async with limiter.acquire("key-1", "gpt-4", {"tps": 100}, limits=[TPS]) as lease:
        await expire(world, "key-1")
        await lease.adjust(tps=50_000)
    assert await used(world.repository) == 50_100


def split_bench() -> Bench:
    """A bucket in four items that has been used."""
    bench = Bench()
    with bench.limiter.acquire("key", "gpt-4", {"rpm": 0}):
        bench.split_to(4)
    return bench


def test_a_correction_of_a_shard_that_has_gone_charges_the_item_that_has_its_part() -> None:
    bench = split_bench()
    prefer(bench.repository.scope, bench.home._replace(shard=3))
    with bench.limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
        gone = bench.items.pop(bench.home._replace(shard=3))
        assert gone.acquires == 1
        lease.adjust(rpm=10)
    assert bench.consumed("rpm") == 10_000


def test_a_correction_of_a_split_bucket_that_has_gone_makes_one_item_anew() -> None:
    bench = split_bench()
    prefer(bench.repository.scope, bench.home._replace(shard=3))
    with bench.limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
        bench.items.clear()
        lease.adjust(rpm=10)
    assert bench.items.keys() == {bench.home}
    assert bench.total("rpm") == (RPM.capacity - 10) * 1000


def test_an_item_that_expires_right_after_a_correction_is_put_back_with_the_debt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    write = bench.store.buckets.write

    async def write_and_expire(address: BucketAddress, sent: Write) -> Outcome:
        outcome = await write(address, sent)
        if isinstance(sent, Adjust):
            del bench.items[address]
        return outcome

    with bench.limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
        monkeypatch.setattr(bench.store.buckets, "write", write_and_expire)
        lease.adjust(rpm=10 * RPM.capacity)
    assert bench.total("rpm") == -9 * RPM.capacity * 1000 - 1000
    assert bench.consumed("rpm") == 0
