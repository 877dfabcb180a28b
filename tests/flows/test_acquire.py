from __future__ import annotations

import math
from typing import Any

import pytest

from tests.support.drivers import World, balance, limiter_on, take
from zae_limiter import (
    LeaseExpiredError,
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    ValidationError,
)
from zae_limiter.testing import ManualClock

LIMITS = [Limit.per_minute("rpm", 60), Limit.per_hour("tpm", 3_600, burst=1_000)]


@pytest.fixture(autouse=True)
async def _limits(repository: Repository) -> None:
    await repository.set_system_defaults(LIMITS)


async def test_an_acquire_takes_from_every_limit_that_it_names(
    limiter: RateLimiter, repository: Repository
) -> None:
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 400}) as lease:
        assert lease.consumed == {"rpm": 1, "tpm": 400}
        assert not lease.degraded
        assert await balance(repository) == {"rpm": 59_000, "tpm": 600_000}
    await take(limiter, tpm=100)
    assert await balance(repository) == {"rpm": 59_000, "tpm": 500_000}


async def test_a_lease_names_the_bucket_that_it_charged(
    limiter: RateLimiter, repository: Repository
) -> None:
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 2}) as lease:
        (entry,) = lease.entries
    assert entry.address == (repository.namespace_id, "key-1", "gpt-4", 0)
    assert entry.charged_milli == {"rpm": 2_000}


async def test_a_refusal_names_every_limit_and_takes_nothing(
    limiter: RateLimiter, repository: Repository
) -> None:
    await take(limiter, rpm=50)
    before = await balance(repository)
    with pytest.raises(RateLimitExceeded) as refused:
        await take(limiter, rpm=11, tpm=5)
    error = refused.value
    assert await balance(repository) == before
    assert [status.limit_name for status in error.violations] == ["rpm"]
    assert [status.limit_name for status in error.passed] == ["tpm"]
    violation = error.primary_violation
    assert (violation.entity_id, violation.resource) == ("key-1", "gpt-4")
    assert (violation.available, violation.requested, violation.deficit) == (10, 11, 1)
    assert (error.retryable, error.retry_after_seconds) == (True, 1.0)


@pytest.mark.parametrize("amount", [1, 7, 60])
async def test_retry_after_is_exact_to_the_millisecond(
    limiter: RateLimiter, clock: ManualClock, amount: int
) -> None:
    await take(limiter, rpm=60)
    clock.advance(0.123)
    with pytest.raises(RateLimitExceeded) as refused:
        await take(limiter, rpm=amount)
    wait_s = refused.value.retry_after_seconds
    assert await limiter.time_until_available("key-1", "gpt-4", {"rpm": amount}) == wait_s
    clock.advance(wait_s - 0.001)
    with pytest.raises(RateLimitExceeded):
        await take(limiter, rpm=amount)
    clock.advance(0.001)
    await take(limiter, rpm=amount)


async def test_a_request_larger_than_the_capacity_can_never_succeed(
    limiter: RateLimiter, repository: Repository
) -> None:
    for known in (False, True):
        with pytest.raises(RateLimitExceeded) as refused:
            await take(limiter, tpm=1_001, rpm=1)
        assert not refused.value.retryable
        assert refused.value.retry_after_header is None
        assert refused.value.as_dict()["retry_after_seconds"] is None
        needed = {"tpm": 1_001, "rpm": 1}
        assert await limiter.time_until_available("key-1", "gpt-4", needed) == math.inf
        if not known:
            assert await balance(repository) == {}
            await take(limiter, rpm=1)


async def test_an_acquire_of_nothing_is_always_granted(limiter: RateLimiter, world: World) -> None:
    await take(limiter, rpm=60)
    await take(limiter)
    await take(limiter, rpm=0, tpm=0)
    assert await balance(world.repository) == {"rpm": 0, "tpm": 1_000_000}


async def test_an_adjust_is_written_when_the_lease_ends(
    limiter: RateLimiter, repository: Repository
) -> None:
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 100}) as lease:
        await lease.adjust(tpm=50)
        await lease.adjust(tpm=-20, rpm=2)
        assert lease.consumed == {"rpm": 3, "tpm": 130}
        assert await balance(repository) == {"rpm": 59_000, "tpm": 900_000}
    assert await balance(repository) == {"rpm": 57_000, "tpm": 870_000}


async def test_an_adjust_may_leave_debt_that_refills_repay(
    limiter: RateLimiter, repository: Repository, clock: ManualClock
) -> None:
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 60}) as lease:
        await lease.adjust(rpm=30)
    assert await balance(repository) == {"rpm": -30_000, "tpm": 1_000_000}
    assert await limiter.available("key-1", "gpt-4") == {"rpm": -30, "tpm": 1_000}
    await take(limiter, tpm=1)
    clock.advance(30.999)
    with pytest.raises(RateLimitExceeded):
        await take(limiter, rpm=1)
    clock.advance(0.001)
    await take(limiter, rpm=1)


async def test_a_bucket_does_not_expire_before_its_debt_is_paid(
    limiter: RateLimiter, world: World
) -> None:
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}) as lease:
        await lease.adjust(rpm=9_999)
    found = await world.scope.store.buckets.of_resource(world.repository.namespace_id, "gpt-4")
    expiries = [bucket.expires_at_s for bucket in found.values()]
    assert expiries == [world.clock.now_ms() // 1000 + 10_000]


async def test_a_release_gives_back_part_of_the_charge(
    limiter: RateLimiter, repository: Repository
) -> None:
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 10, "tpm": 100}) as lease:
        await lease.release(rpm=4, tpm=100)
        assert lease.consumed == {"rpm": 6, "tpm": 0}
    assert await balance(repository) == {"rpm": 54_000, "tpm": 1_000_000}


async def test_a_lease_can_consume_more_while_it_is_active(
    limiter: RateLimiter, repository: Repository
) -> None:
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}) as lease:
        await lease.consume(tpm=600, rpm=1)
        assert await balance(repository) == {"rpm": 58_000, "tpm": 400_000}
        with pytest.raises(RateLimitExceeded):
            await lease.consume(tpm=401, rpm=1)
        assert await balance(repository) == {"rpm": 58_000, "tpm": 400_000}
        assert lease.consumed == {"rpm": 2, "tpm": 600}
        await lease.consume()
        await lease.consume(tpm=0)
    assert await balance(repository) == {"rpm": 58_000, "tpm": 400_000}


async def test_a_refund_includes_tokens_that_a_lease_consumed_later(
    limiter: RateLimiter, repository: Repository
) -> None:
    async def work() -> None:
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}) as lease:
            await lease.consume(tpm=600)
            await lease.adjust(tpm=50, rpm=5)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()
    assert await balance(repository) == {"rpm": 60_000, "tpm": 1_000_000}


async def test_a_lease_cannot_be_used_after_its_block(limiter: RateLimiter, world: World) -> None:
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}) as lease:
        pass
    before = world.dump()
    for use in (lease.consume, lease.adjust, lease.release):
        with pytest.raises(LeaseExpiredError):
            await use(rpm=1)
    assert world.dump() == before


async def test_an_unused_limit_is_refilled_with_the_others(
    limiter: RateLimiter, clock: ManualClock
) -> None:
    """A slow limit beside a fast one loses nothing however often the fast one is used."""
    await take(limiter, rpm=60, tpm=1_000)
    for _ in range(100):
        clock.advance(1.007)
        await take(limiter, rpm=1)
    assert await limiter.available("key-1", "gpt-4") == {"rpm": 0, "tpm": 100}


async def test_available_and_time_until_available_take_nothing(
    limiter: RateLimiter, world: World
) -> None:
    assert await limiter.available("key-1", "gpt-4") == {"rpm": 60, "tpm": 1_000}
    assert await limiter.time_until_available("key-1", "gpt-4", {"rpm": 60}) == 0
    assert await balance(world.repository) == {}
    await take(limiter, rpm=60, tpm=10)
    before = world.dump()
    assert await limiter.available("key-1", "gpt-4") == {"rpm": 0, "tpm": 990}
    assert await limiter.time_until_available("key-1", "gpt-4", {"rpm": 30, "tpm": 990}) == 30
    assert await limiter.time_until_available("key-1", "gpt-4", {}) == 0
    assert world.dump() == before


async def test_entities_and_resources_have_buckets_of_their_own(limiter: RateLimiter) -> None:
    await take(limiter, "key-1", "gpt-4", rpm=60)
    await take(limiter, "key-1", "gpt-3", rpm=60)
    await take(limiter, "key-2", "gpt-4", rpm=60)
    with pytest.raises(RateLimitExceeded):
        await take(limiter, "key-2", "gpt-4", rpm=1)


async def test_use_stored_limits_is_deprecated_and_has_no_effect(
    limiter: RateLimiter,
) -> None:
    with pytest.warns(DeprecationWarning, match="use_stored_limits"):
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, use_stored_limits=True):
            pass
    with pytest.warns(DeprecationWarning, match="use_stored_limits"):
        assert await limiter.available("key-1", "gpt-4", use_stored_limits=True)


async def test_two_limiters_on_one_repository_share_its_buckets(world: World) -> None:
    one, other = world.limiter(), world.limiter()
    await take(one, rpm=40)
    with pytest.raises(RateLimitExceeded):
        await take(other, rpm=21)
    await take(other, rpm=20)


async def test_takings_of_another_process_are_seen(world: World) -> None:
    here, there = world.limiter(), limiter_on(world.stranger())
    for _ in range(30):
        await take(here, rpm=1)
        await take(there, rpm=1)
    for limiter in (here, there):
        with pytest.raises(RateLimitExceeded) as refused:
            await take(limiter, rpm=1)
        assert refused.value.retry_after_seconds == 1


async def test_acquires_without_speculative_writes_have_equal_outcomes(world: World) -> None:
    limiter = world.limiter(speculative_writes=False)
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 50}) as lease:
        await lease.consume(rpm=5)
        await lease.adjust(tpm=10)
    with pytest.raises(RateLimitExceeded) as refused:
        await take(limiter, rpm=6)
    assert refused.value.retry_after_seconds == 1
    with pytest.raises(ZeroDivisionError):
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 5}):
            raise ZeroDivisionError
    world.clock.advance(60)
    await take(limiter, rpm=60)
    assert await balance(world.repository) == {"rpm": 0, "tpm": 1_000_000}


async def test_a_charge_without_speculative_writes_reads_first(world: World) -> None:
    limiter = world.limiter(speculative_writes=False)
    store: Any = world.scope.store
    buckets, calls = store.buckets, []

    class Noting:
        def __getattr__(self, name: str) -> Any:
            calls.append(name)
            return getattr(buckets, name)

    store.buckets = Noting()
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}) as lease:
        await lease.consume(rpm=1)
    store.buckets = buckets
    assert [name for name in calls if name in ("read", "write")] == ["read", "write"] * 2


async def test_limits_named_like_python_words_can_be_used(world: World) -> None:
    limits = [Limit.per_minute(name, 10) for name in ("self", "a-b", "c.d", "class")]
    async with world.limiter().acquire("key-1", "gpt-4", {"self": 1}, limits) as lease:
        await lease.adjust(**{"self": 2, "a-b": 1})
        await lease.consume(**{"self": 1, "c.d": 4, "class": 1})
        await lease.release(**{"self": 1, "class": 1})
    assert await balance(world.repository) == {
        "self": 7_000,
        "a-b": 9_000,
        "c.d": 6_000,
        "class": 10_000,
    }


async def test_an_acquisition_can_be_entered_again(limiter: RateLimiter, world: World) -> None:
    acquisition = limiter.acquire("key-1", "gpt-4", {"rpm": 1})
    for _ in range(3):
        async with acquisition:
            pass
    assert await balance(world.repository) == {"rpm": 57_000, "tpm": 1_000_000}


async def test_an_acquire_without_limits_at_any_level_is_refused(world: World) -> None:
    await world.repository.delete_system_defaults()
    before = world.dump()
    with pytest.raises(ValidationError) as refused:
        await take(world.limiter(), rpm=1)
    assert refused.value.field == "limits"
    assert world.dump() == before
