"""A bucket that is known to be short refuses without a call, and never for nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.crowd import Crowd, crowd, take, wait_of
from tests.support.drivers import Driver
from zae_limiter import Limit, RateLimitExceeded
from zae_limiter.backends.memory import MemoryStore
from zae_limiter.flows.shards.items import read_all, split_shard

FAST = Limit.per_second("rpm", 100)
SLOW = Limit.per_hour("rpm", 10)


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'limits.db'}"


def calls(it: Crowd) -> int:
    """Return how many calls about buckets the store got."""
    return len(it.buckets.writes) + it.buckets.reads


def rejections(it: Crowd) -> int:
    return it.repository.get_cache_stats().local_rejections


async def test_a_hopeless_request_costs_no_call_until_it_fits(driver: Driver, url: str) -> None:
    async with crowd(driver, url, [FAST]) as it:
        await take(it.limiter, rpm=100)
        assert await wait_of(it.limiter, rpm=50) == 0.5
        before = calls(it)
        for passed_ms in range(1, 500):
            it.clock.advance(0.001)
            assert await wait_of(it.limiter, rpm=50) == (500 - passed_ms) / 1000
        assert calls(it) == before
        assert rejections(it) == 499
        it.clock.advance(0.001)
        assert await take(it.limiter, rpm=50)
        assert calls(it) > before
        assert rejections(it) == 499


async def test_a_request_that_can_never_fit_costs_no_call(driver: Driver, url: str) -> None:
    async with crowd(driver, url, [FAST]) as it:
        assert await wait_of(it.limiter, rpm=101) == float("inf")
        before = calls(it)
        assert await wait_of(it.limiter, rpm=101) == float("inf")
        assert (calls(it), rejections(it)) == (before, 1)
        assert await take(it.limiter, rpm=100)


async def test_a_request_that_fits_is_sent_to_the_store(driver: Driver, url: str) -> None:
    async with crowd(driver, url, [FAST]) as it:
        await take(it.limiter, rpm=90)
        assert await wait_of(it.limiter, rpm=20) == 0.1
        assert await take(it.limiter, rpm=10)
        assert rejections(it) == 0


async def test_a_cached_refusal_s_wait_is_exact_after_own_takings(driver: Driver, url: str) -> None:
    async with crowd(driver, url, [FAST]) as it:
        await take(it.limiter, rpm=90)
        assert await wait_of(it.limiter, rpm=20) == 0.1
        assert await take(it.limiter, rpm=10)
        assert await wait_of(it.limiter, rpm=20) == 0.2
        assert await wait_of(it.limiter, rpm=20) == 0.2
        assert rejections(it) == 1


async def test_a_refusal_is_cached_for_a_second_at_most(driver: Driver, url: str) -> None:
    """A refund by another process is noticed after that second."""
    async with crowd(driver, url, [SLOW]) as it:
        other = it.other()
        held = other.acquire("key-1", "gpt-4", {"rpm": 10})
        await held.__aenter__()
        assert not await take(it.limiter, rpm=1)
        await held.__aexit__(LookupError, LookupError(), None)
        it.clock.advance(0.999)
        assert not await take(it.limiter, rpm=1)
        it.clock.advance(0.001)
        assert await take(it.limiter, rpm=1)


@pytest.mark.parametrize("ttl", [0, 0.1, 30])
async def test_a_refusal_is_cached_for_refusal_cache_ttl(driver: Driver, ttl: float) -> None:
    async with crowd(driver, "memory://", [SLOW], refusal_cache_ttl=ttl) as it:
        await take(it.limiter, rpm=10)
        assert not await take(it.limiter, rpm=1)
        before = calls(it)
        assert not await take(it.limiter, rpm=1)
        assert (calls(it) == before) == (ttl > 0)
        it.clock.advance(ttl)
        before = calls(it)
        assert not await take(it.limiter, rpm=1)
        assert calls(it) > before
        assert rejections(it) == (1 if ttl else 0)


async def test_a_refund_by_this_process_drops_the_cached_refusal(driver: Driver, url: str) -> None:
    async with crowd(driver, url, [SLOW]) as it:
        held = it.limiter.acquire("key-1", "gpt-4", {"rpm": 10})
        await held.__aenter__()
        assert not await take(it.limiter, rpm=1)
        await held.__aexit__(LookupError, LookupError(), None)
        assert await take(it.limiter, rpm=10)


@pytest.mark.parametrize("delta", [-4, 4])
async def test_a_correction_by_this_process_drops_the_cached_refusal(
    driver: Driver, url: str, delta: int
) -> None:
    async with crowd(driver, url, [SLOW]) as it:
        held = it.limiter.acquire("key-1", "gpt-4", {"rpm": 8})
        lease = await held.__aenter__()
        assert await wait_of(it.limiter, rpm=3) == 360
        correction = lease.adjust(rpm=delta)
        if asyncio.iscoroutine(correction):
            await correction
        await held.__aexit__(None, None, None)
        assert await wait_of(it.limiter, rpm=3) == (0 if delta < 0 else 360 * 5)


async def test_a_refund_that_lands_during_refusals_is_not_missed(driver: Driver, url: str) -> None:
    """Some callers that were refused cache the refusal when the refund is already under way."""
    async with crowd(driver, url, [SLOW]) as it:
        held = it.limiter.acquire("key-1", "gpt-4", {"rpm": 10})
        await held.__aenter__()
        refused = [take(it.limiter, rpm=5) for _ in range(8)]
        refund = held.__aexit__(LookupError, LookupError(), None)
        outcomes = await it.meet(take(it.limiter, rpm=0), *refused, refund)
        assert outcomes[:-1] == [True] + [False] * 8
        assert await take(it.limiter, rpm=10)


async def test_a_limit_change_by_this_process_drops_the_cached_refusal(
    driver: Driver, url: str
) -> None:
    async with crowd(driver, url, [SLOW]) as it:
        await take(it.limiter, rpm=10)
        assert not await take(it.limiter, rpm=1)
        await it.limiter.set_limits("key-1", [Limit.per_hour("rpm", 10), Limit.per_hour("tpm", 5)])
        assert await take(it.limiter, tpm=5)
        assert not await take(it.limiter, rpm=1)
        await it.limiter.set_limits("key-1", [Limit.per_second("rpm", 1000)])
        assert await wait_of(it.limiter, rpm=5) == 0.005
        it.clock.advance(0.005)
        assert await take(it.limiter, rpm=5)


async def test_limits_that_changed_and_changed_back_are_asked_of_the_store(
    driver: Driver, url: str
) -> None:
    """Under the faster limits the bucket has gained what the slower would not have."""
    async with crowd(driver, url, [SLOW]) as it:
        await take(it.limiter, rpm=10)
        assert not await take(it.limiter, rpm=1)
        await it.limiter.set_limits("key-1", [Limit.per_second("rpm", 1000)])
        assert not await take(it.limiter, rpm=1)
        it.clock.advance(0.005)
        assert await take(it.limiter, rpm=1)
        await it.limiter.delete_limits("key-1")
        assert await take(it.limiter, rpm=4)


async def test_deleting_an_entity_drops_its_cached_refusals(driver: Driver, url: str) -> None:
    async with crowd(driver, url, [SLOW]) as it:
        await it.limiter.create_entity("key-1")
        await take(it.limiter, rpm=10)
        assert not await take(it.limiter, rpm=1)
        await it.limiter.delete_entity("key-1")
        assert await take(it.limiter, rpm=1)


async def test_refusals_are_cached_for_each_bucket_apart(driver: Driver, url: str) -> None:
    async with crowd(driver, url, [SLOW]) as it:
        await take(it.limiter, rpm=10)
        assert not await take(it.limiter, rpm=1)
        assert await take(it.limiter, "key-2", rpm=10)
        async with it.limiter.acquire("key-1", "gpt-3", {"rpm": 1}):
            pass


async def test_the_refusal_cache_is_bounded(driver: Driver) -> None:
    async with crowd(driver, "memory://", [SLOW], refusal_cache_size=3) as it:
        names = [f"key-{number}" for number in range(8)]
        for name in names:
            await take(it.limiter, name, rpm=10)
            assert not await take(it.limiter, name, rpm=1)
        assert len(it.scope.local.refusals._short) == 3
        for name in names:
            assert not await take(it.limiter, name, rpm=1)
        assert len(it.scope.local.refusals._short) == 3


async def family(it: Crowd) -> None:
    await it.limiter.create_entity("org")
    await it.limiter.create_entity("key-1", parent_id="org", cascade=True)
    await it.limiter.set_limits("org", [Limit.per_hour("rpm", 100)])


@pytest.mark.parametrize("short", ["key-1", "org"])
async def test_no_level_is_written_to_while_one_is_known_to_be_short(
    driver: Driver, url: str, short: str
) -> None:
    async with crowd(driver, url, [SLOW]) as it:
        await family(it)
        await take(it.limiter, rpm=1)
        await take(it.limiter, "org", rpm={"key-1": 1, "org": 95}[short])
        asked = {"key-1": 10, "org": 5}[short]
        wait_s = await wait_of(it.limiter, rpm=asked)
        assert wait_s == {"key-1": 360, "org": 36}[short]
        before = calls(it)
        for _ in range(20):
            with pytest.raises(RateLimitExceeded) as refused:
                await it.limiter.acquire("key-1", "gpt-4", {"rpm": asked}).__aenter__()
            assert refused.value.retry_after_seconds == wait_s
            assert refused.value.primary_violation.entity_id == short
            assert [status.entity_id for status in refused.value.statuses] == ["key-1", "org"]
        assert calls(it) == before
        assert rejections(it) == 20
        assert await it.tokens("rpm", "org") == {"key-1": 98_000, "org": 4000}[short]


async def test_a_cached_refusal_tells_the_longest_wait_of_all_levels(
    driver: Driver, url: str
) -> None:
    async with crowd(driver, url, [SLOW]) as it:
        await family(it)
        await take(it.limiter, rpm=9)
        await take(it.limiter, "org", rpm=91)
        waits = [await wait_of(it.limiter, rpm=3) for _ in range(3)]
        assert waits == [720, 720, 720]
        await it.limiter.set_limits("org", [Limit.per_day("rpm", 100)])
        assert await wait_of(it.limiter, rpm=3) == 2592
        assert await wait_of(it.limiter, rpm=3) == 2592


@pytest.mark.parametrize("count", [2, 8])
async def test_a_refusal_of_a_split_bucket_is_cached_as_a_whole(driver: Driver, count: int) -> None:
    async with crowd(driver, "memory://", [FAST]) as it:
        store = it.origin.scope.store
        assert isinstance(store, MemoryStore)
        store.buckets.metered = True
        await take(it.limiter, rpm=0)
        while len(await read_all(it.scope, it.home())) < count:
            for address, bucket in (await read_all(it.scope, it.home())).items():
                await split_shard(it.scope, address, bucket)
        await take(it.limiter, rpm=100)
        wait_s = await wait_of(it.limiter, rpm=50)
        assert wait_s == 0.5
        before = calls(it)
        for passed_ms in range(1, 500):
            it.clock.advance(0.001)
            assert await wait_of(it.limiter, rpm=50) == (500 - passed_ms) / 1000
        assert calls(it) == before
        it.clock.advance(0.001)
        assert await take(it.limiter, rpm=50)


async def test_a_waiter_is_served_as_soon_as_tokens_come_back(driver: Driver) -> None:
    async with crowd(driver, "memory://", [SLOW]) as it:
        held = it.limiter.acquire("key-1", "gpt-4", {"rpm": 10})
        await held.__aenter__()
        assert not await take(it.limiter, rpm=1)
        await held.__aexit__(LookupError, LookupError(), None)
        start_ms = it.clock.now_ms()
        async with it.limiter.acquire("key-1", "gpt-4", {"rpm": 10}, timeout=3600):
            assert it.clock.now_ms() == start_ms
        async with it.limiter.acquire("key-1", "gpt-4", {"rpm": 1}, timeout=3600):
            assert it.clock.now_ms() == start_ms + 360_000
