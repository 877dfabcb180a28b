"""Idempotency keys: a key is charged for once, whichever processes use it."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import Any

import pytest

from tests.support.drivers import World, limiter_on
from tests.support.receipts import FULL, WANTED, prepare, used
from zae_limiter import (
    IdempotencyKeyError,
    LeaseExpiredError,
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    ValidationError,
)
from zae_limiter.core.receipts import receipt_terms
from zae_limiter.testing import ManualClock

DAY_S = 86_400


class JobFailed(Exception):
    """The work of a lease has failed."""


@pytest.fixture
async def limiter(world: World) -> RateLimiter:
    return await prepare(world)


def elsewhere(world: World) -> RateLimiter:
    """The limiter as another process has it."""
    return limiter_on(world.stranger())


async def run_job(limiter: RateLimiter, key: str = "job-1", *, fails: bool = False) -> bool:
    """Acquire with a key, and return whether that was a repeat."""
    async with limiter.acquire("key-1", "gpt-4", WANTED, idempotency_key=key) as lease:
        if fails:
            raise JobFailed
        return lease.is_repeat


async def test_a_key_is_charged_once_across_processes(world: World, limiter: RateLimiter) -> None:
    assert await run_job(limiter) is False
    assert await run_job(elsewhere(world)) is True
    assert await run_job(limiter) is True
    assert await used(world) == WANTED


async def test_a_call_without_a_key_is_no_repeat(world: World, limiter: RateLimiter) -> None:
    for _ in range(2):
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}) as lease:
            assert lease.is_repeat is False
    assert await used(world) == {"rpm": 2, "tpm": 0}


async def test_other_keys_are_charged_each(world: World, limiter: RateLimiter) -> None:
    for key in ("a", "b"):
        assert await run_job(limiter, key) is False
    assert await used(world) == {"rpm": 2, "tpm": 1000}


async def test_a_key_whose_block_failed_is_free_again(world: World, limiter: RateLimiter) -> None:
    with pytest.raises(JobFailed):
        await run_job(limiter, fails=True)
    assert await used(world) == FULL
    assert await run_job(elsewhere(world)) is False
    assert await used(world) == WANTED


async def test_a_repeat_is_served_though_the_bucket_is_empty(
    world: World, limiter: RateLimiter
) -> None:
    await run_job(limiter, "a")
    await run_job(limiter, "b")
    for asking in (limiter, elsewhere(world), limiter):
        with pytest.raises(RateLimitExceeded):
            await run_job(asking, "c")
        assert await run_job(asking, "a") is True
    assert await used(world) == {"rpm": 2, "tpm": 1000}


async def test_a_refused_key_is_free(world: World, limiter: RateLimiter) -> None:
    await run_job(limiter, "a")
    await run_job(limiter, "b")
    with pytest.raises(RateLimitExceeded):
        await run_job(limiter, "c")
    world.clock.advance(DAY_S)
    assert await run_job(elsewhere(world), "c") is False


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("consume", {"consume": {"rpm": 2, "tpm": 500}}),
        ("consume", {"consume": {"rpm": 1}}),
        ("entity_id", {"entity_id": "key-2"}),
        ("resource", {"resource": "gpt-5"}),
    ],
)
async def test_a_key_for_another_request_is_an_error_that_names_the_difference(
    world: World, limiter: RateLimiter, field: str, other: dict[str, Any]
) -> None:
    await run_job(limiter)
    request = {"entity_id": "key-1", "resource": "gpt-4", "consume": WANTED, **other}
    with pytest.raises(IdempotencyKeyError, match=f"'job-1' was used with another {field}"):
        async with elsewhere(world).acquire(**request, idempotency_key="job-1"):
            pass
    assert await used(world) == WANTED


async def test_amounts_of_zero_make_no_other_request(world: World, limiter: RateLimiter) -> None:
    for consume in ({"rpm": 1}, {"rpm": 1, "tpm": 0}):
        async with limiter.acquire("key-1", "gpt-4", consume, idempotency_key="k"):
            pass
    assert await used(world) == {"rpm": 1, "tpm": 0}


async def test_a_key_is_charged_anew_after_its_lifetime(
    world: World, limiter: RateLimiter, clock: ManualClock
) -> None:
    async def take(asking: RateLimiter) -> bool:
        asked = asking.acquire(
            "key-1", "gpt-4", {"tpm": 10}, idempotency_key="k", idempotency_ttl=60
        )
        async with asked as lease:
            return lease.is_repeat

    assert [await take(limiter), await take(limiter)] == [False, True]
    clock.advance(59)
    assert await take(elsewhere(world)) is True
    clock.advance(2)
    assert [await take(elsewhere(world)), await take(limiter)] == [False, True]


async def test_a_key_is_remembered_for_a_day_by_default(
    world: World, limiter: RateLimiter, clock: ManualClock
) -> None:
    await run_job(limiter)
    clock.advance(DAY_S - 1)
    assert await run_job(limiter) is True
    clock.advance(1)
    assert await run_job(limiter) is False


async def test_callers_at_once_with_one_key_are_charged_once(
    world: World, limiter: RateLimiter
) -> None:
    asking = [limiter, elsewhere(world), elsewhere(world), limiter]
    repeats = await asyncio.gather(*[run_job(each) for each in asking])
    assert sorted(repeats) == [False, True, True, True]
    assert await used(world) == WANTED


async def test_a_repeat_of_a_committed_charge_changes_nothing(
    world: World, limiter: RateLimiter
) -> None:
    first = await limiter.reserve("key-1", "gpt-4", WANTED, idempotency_key="k")
    await first.commit(tpm=700)
    paid = await used(world)
    repeat = await elsewhere(world).reserve("key-1", "gpt-4", WANTED, idempotency_key="k")
    assert repeat.id == first.id
    await repeat.consume(tpm=100)
    await repeat.adjust(tpm=50)
    with pytest.raises(LeaseExpiredError):
        repeat.token()
    await repeat.commit(tpm=20)
    with pytest.raises(LeaseExpiredError):
        await repeat.commit(tpm=20)
    with pytest.raises(LeaseExpiredError, match="has been committed"):
        await (await limiter.reserve("key-1", "gpt-4", WANTED, idempotency_key="k")).release()
    assert await used(world) == paid == {"rpm": 1, "tpm": 700}


async def test_a_charge_is_given_back_by_its_last_holder_only(
    world: World, limiter: RateLimiter
) -> None:
    first = await limiter.reserve("key-1", "gpt-4", WANTED, idempotency_key="k")
    repeat = await elsewhere(world).reserve("key-1", "gpt-4", WANTED, idempotency_key="k")
    assert (first.is_repeat, repeat.is_repeat) == (False, True)
    await first.release()
    assert await used(world) == WANTED
    await repeat.release()
    assert await used(world) == FULL
    assert await run_job(limiter, "k") is False


async def test_the_first_commit_of_several_holders_stands(
    world: World, limiter: RateLimiter
) -> None:
    first = await limiter.reserve("key-1", "gpt-4", WANTED, idempotency_key="k")
    repeat = await elsewhere(world).reserve("key-1", "gpt-4", WANTED, idempotency_key="k")
    await first.consume(tpm=100)
    await repeat.commit(tpm=650)
    await first.commit(tpm=1)
    assert await used(world) == {"rpm": 1, "tpm": 650}


async def test_a_release_after_another_holders_commit_is_an_error(
    world: World, limiter: RateLimiter
) -> None:
    first = await limiter.reserve("key-1", "gpt-4", WANTED, idempotency_key="k")
    repeat = await elsewhere(world).reserve("key-1", "gpt-4", WANTED, idempotency_key="k")
    await repeat.commit()
    with pytest.raises(LeaseExpiredError):
        await first.release()
    assert await used(world) == WANTED


async def test_very_many_repeats_do_not_make_the_receipt_grow_for_ever(
    world: World, limiter: RateLimiter
) -> None:
    first = await limiter.reserve("key-1", "gpt-4", WANTED, idempotency_key="k")
    repeats = [
        await elsewhere(world).reserve("key-1", "gpt-4", WANTED, idempotency_key="k")
        for _ in range(20)
    ]
    held = repeats[-1]._record.held
    assert held is not None
    assert len(held.receipt.holders) == 16
    for lease in (first, *repeats[:-1]):
        await lease.release()
    assert await used(world) == WANTED, "nobody knows how many share the last holder"
    await repeats[-1].commit(tpm=10)
    assert await used(world) == {"rpm": 1, "tpm": 10}


async def test_a_repeat_does_not_wait_for_tokens(world: World, limiter: RateLimiter) -> None:
    for key in ("a", "b"):
        await run_job(limiter, key)
    before = world.clock.now_ms()
    lease = await elsewhere(world).reserve(
        "key-1", "gpt-4", WANTED, timeout=DAY_S, idempotency_key="a"
    )
    assert lease.is_repeat
    await lease.commit()
    assert world.clock.now_ms() - before < 1000
    late = await limiter.reserve("key-1", "gpt-4", WANTED, timeout=DAY_S, idempotency_key="c")
    assert not late.is_repeat
    await late.commit()
    assert world.clock.now_ms() - before > 1000


async def test_a_repeat_that_has_nothing_to_end_warns_nobody(limiter: RateLimiter) -> None:
    await run_job(limiter)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lease = await limiter.reserve("key-1", "gpt-4", WANTED, idempotency_key="job-1")
        assert lease.is_repeat
        del lease
        gc.collect()
    assert not [each for each in caught if "was never ended" in str(each.message)]


@pytest.mark.parametrize("entity_id", ["org", "key-1"], ids=["one level", "two levels"])
async def test_callers_that_wait_with_one_key_are_all_served_when_one_of_them_is(
    entity_id: str,
) -> None:
    async with await Repository.open(url="memory://") as repository, asyncio.timeout(60):
        await repository.set_system_defaults([Limit.per_day("rpm", 1)])
        await repository.create_entity("org")
        await repository.create_entity("key-1", parent_id="org", cascade=True)
        limiter = RateLimiter(repository)
        taken = await limiter.reserve(entity_id, "gpt-4", {"rpm": 1})

        async def wait() -> bool:
            lease = await limiter.reserve(
                entity_id, "gpt-4", {"rpm": 1}, timeout=9 * DAY_S, idempotency_key="k"
            )
            await lease.commit()
            return lease.is_repeat

        waiting = [asyncio.ensure_future(wait()) for _ in range(4)]
        await asyncio.sleep(0.05)
        await taken.release()
        assert sorted(await asyncio.gather(*waiting)) == [False, True, True, True]


async def test_a_key_with_limits_of_its_own_is_charged_under_them(world: World) -> None:
    limiter = world.limiter()
    limits = [Limit.per_day("rpm", 2)]
    for key in ("a", "a", "b"):
        async with limiter.acquire("own", "gpt-4", {"rpm": 1}, limits, idempotency_key=key):
            pass
    with pytest.raises(RateLimitExceeded):
        async with limiter.acquire("own", "gpt-4", {"rpm": 1}, limits, idempotency_key="c"):
            pass


@pytest.mark.parametrize(
    "options",
    [
        {"idempotency_key": ""},
        {"idempotency_key": "x" * 256},
        {"idempotency_key": "line\nbreak"},
        {"idempotency_key": "\x00"},
        {"idempotency_key": "\ud800"},
        {"idempotency_key": 7},
        {"idempotency_key": b"bytes"},
        {"idempotency_ttl": 60},
        {"idempotency_key": "k", "idempotency_ttl": 0},
        {"idempotency_key": "k", "idempotency_ttl": float("nan")},
        {"idempotency_key": "k", "idempotency_ttl": True},
        {"idempotency_key": "k", "idempotency_ttl": 1e12},
        {"idempotency_key": "k", "idempotency_ttl": 5, "lease_ttl": 6},
        {"lease_ttl": -1},
        {"lease_ttl": "60"},
        {"lease_ttl": float("inf")},
    ],
)
def test_bad_terms_are_refused_before_any_call(options: dict[str, Any]) -> None:
    given = {"idempotency_key": None, "idempotency_ttl": None, "lease_ttl": None, **options}
    with pytest.raises(ValidationError, match=r"idempotency_key|idempotency_ttl|lease_ttl"):
        receipt_terms(**given)


@pytest.mark.parametrize(
    "key", ["x", "x" * 255, "\U0001f680" * 255, "größer ≥ 10 €", "a b#c/d", "'\"\\"]
)
async def test_any_printable_text_is_a_key(world: World, limiter: RateLimiter, key: str) -> None:
    assert [await run_job(limiter, key), await run_job(elsewhere(world), key)] == [False, True]
    assert await used(world) == WANTED
