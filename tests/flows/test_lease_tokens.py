"""Leases that are handed to another process as text, and ended there once."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.drivers import World, balance, limiter_on
from tests.support.receipts import FULL, WANTED, from_token, prepare, used
from zae_limiter import (
    Lease,
    LeaseExpiredError,
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    SyncLease,
    SyncRateLimiter,
    SyncRepository,
    ValidationError,
)
from zae_limiter.core.lease_token import LeaseToken, encode_token
from zae_limiter.core.receipts import ReceiptKey
from zae_limiter.limiter_base import OnError
from zae_limiter.testing import ManualClock


@pytest.fixture
async def limiter(world: World) -> RateLimiter:
    return await prepare(world)


def elsewhere(world: World) -> RateLimiter:
    """The limiter as another process has it."""
    return limiter_on(world.stranger())


async def reserve(limiter: RateLimiter, **options: Any) -> Lease:
    return await limiter.reserve("key-1", "gpt-4", WANTED, **{"lease_ttl": 60, **options})


async def run_block(
    limiter: RateLimiter,
    work: Callable[[Lease], Awaitable[None]],
    tpm: int = 500,
    on_error: OnError = "refund",
) -> None:
    asked = limiter.acquire(
        "key-1", "gpt-4", {"rpm": 1, "tpm": tpm}, lease_ttl=60, on_error=on_error
    )
    async with asked as lease:
        await work(lease)


async def test_a_lease_is_committed_in_another_process(world: World, limiter: RateLimiter) -> None:
    lease = await reserve(limiter)
    taken_up = await from_token(elsewhere(world), lease.token())
    assert taken_up.id == lease.id
    assert taken_up.consumed == lease.consumed == {"rpm": 2, "tpm": 1000}
    assert taken_up.is_repeat is False
    await taken_up.commit(tpm=120)
    assert await used(world) == {"rpm": 1, "tpm": 120}


async def test_a_lease_is_released_in_another_process(world: World, limiter: RateLimiter) -> None:
    token = (await reserve(limiter)).token()
    await (await from_token(elsewhere(world), token)).release()
    assert await used(world) == FULL


async def test_a_further_charge_in_one_process_is_ended_in_another(
    world: World, limiter: RateLimiter
) -> None:
    lease = await reserve(limiter)
    await lease.consume(tpm=100)
    taken_up = await from_token(elsewhere(world), lease.token())
    await taken_up.consume(tpm=200)
    await lease.consume(rpm=1, tpm=10)
    assert await used(world) == {"rpm": 2, "tpm": 810}
    await taken_up.release()
    assert await used(world) == FULL


async def test_many_further_charges_at_once_are_all_made(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/limits.db"
    async with await Repository.open(url=url) as repository:
        await repository.set_system_defaults([Limit.per_day("tpd", 1000)])
        limiter = RateLimiter(repository)
        lease = await limiter.reserve("key", "gpt-4", {"tpd": 1}, lease_ttl=600)
        await asyncio.gather(*(lease.consume(tpd=1) for _ in range(80)))
        assert lease.consumed == {"tpd": 81}
        await lease.release()


@pytest.mark.parametrize("stored", [None, 100], ids=["no limits stored", "lower limits stored"])
async def test_a_further_charge_in_another_process_is_made_under_the_limits_of_the_first(
    world: World, stored: int | None
) -> None:
    if stored is not None:
        await world.repository.set_system_defaults([Limit.per_day("tpd", stored)])
    limits = [Limit.per_day("tpd", 9000)]
    lease = await world.limiter().reserve("own", "gpt-4", {"tpd": 500}, limits, lease_ttl=60)
    taken_up = await from_token(elsewhere(world), lease.token())
    await taken_up.consume(tpd=40)
    await taken_up.commit()
    assert await balance(world.repository, "own") == {"tpd": 8_460_000}


@pytest.mark.parametrize("first", ["commit", "release"])
@pytest.mark.parametrize("second", ["commit", "release", "consume"])
async def test_a_token_is_ended_once(
    world: World, limiter: RateLimiter, first: str, second: str
) -> None:
    lease = await reserve(limiter)
    token = lease.token()
    others = [await from_token(elsewhere(world), token) for _ in range(2)]
    await getattr(others[0], first)()
    paid = await used(world)
    amounts = {"tpm": 1} if second == "consume" else {}
    for ended in (lease, others[1]):
        with pytest.raises(LeaseExpiredError, match="has been ended"):
            await getattr(ended, second)(**amounts)
    with pytest.raises(LeaseExpiredError):
        await from_token(limiter, token)
    assert await used(world) == paid


async def test_of_processes_that_end_a_token_at_once_one_does(
    world: World, limiter: RateLimiter
) -> None:
    token = (await reserve(limiter)).token()
    leases = [await from_token(elsewhere(world), token) for _ in range(4)]
    ends = [
        lease.release() if number % 2 else lease.commit(tpm=600 + number)
        for number, lease in enumerate(leases)
    ]
    outcomes = await asyncio.gather(*ends, return_exceptions=True)
    assert sum(outcome is None for outcome in outcomes) == 1
    assert sum(isinstance(outcome, LeaseExpiredError) for outcome in outcomes) == 3
    winner = next(number for number, outcome in enumerate(outcomes) if outcome is None)
    assert await used(world) == (FULL if winner % 2 else {"rpm": 1, "tpm": 600 + winner})


@pytest.mark.parametrize("end", ["commit", "release"])
async def test_a_lease_that_outlives_its_ttl_stays_charged(
    world: World, limiter: RateLimiter, clock: ManualClock, end: str
) -> None:
    lease = await reserve(limiter)
    token = lease.token()
    clock.advance(59)
    late = await from_token(elsewhere(world), token)
    clock.advance(1)
    for each in (lease, late):
        with pytest.raises(LeaseExpiredError, match="lease_ttl has passed"):
            await getattr(each, end)()
    with pytest.raises(LeaseExpiredError, match="lease_ttl has passed"):
        await from_token(limiter, token)
    assert (await used(world))["tpm"] == 500


async def test_a_block_that_outlives_its_ttl_says_so_only_if_corrections_are_lost(
    world: World, limiter: RateLimiter, clock: ManualClock
) -> None:
    async def overrun(lease: Lease) -> None:
        clock.advance(61)

    async def adjust_and_overrun(lease: Lease) -> None:
        await lease.adjust(tpm=5)
        clock.advance(61)

    async def overrun_and_fail(lease: Lease) -> None:
        clock.advance(61)
        raise ZeroDivisionError

    await run_block(limiter, overrun)
    with pytest.raises(LeaseExpiredError):
        await run_block(limiter, adjust_and_overrun, tpm=300)
    with pytest.raises(ZeroDivisionError):
        await run_block(limiter, overrun_and_fail, tpm=100)
    assert 890 < (await used(world))["tpm"] <= 900


async def test_a_receipt_is_dropped_after_its_ttl_and_nothing_is_owed(
    world: World, limiter: RateLimiter, clock: ManualClock
) -> None:
    token = (await reserve(limiter)).token()
    clock.advance(200)
    with pytest.raises(LeaseExpiredError):
        await from_token(elsewhere(world), token)
    async with limiter.acquire("key-1", "gpt-4", {"tpm": 1}):
        pass
    assert (await used(world))["tpm"] <= 501


async def test_a_block_ends_the_lease_for_other_processes(
    world: World, limiter: RateLimiter
) -> None:
    async with limiter.acquire("key-1", "gpt-4", WANTED, lease_ttl=60) as lease:
        token = lease.token()
        await lease.adjust(tpm=-100)
    with pytest.raises(LeaseExpiredError):
        await from_token(elsewhere(world), token)
    assert await used(world) == {"rpm": 1, "tpm": 400}


async def test_a_block_that_fails_after_its_token_was_ended_gives_nothing_back(
    world: World, limiter: RateLimiter
) -> None:
    async def fail_after_an_end_elsewhere(lease: Lease) -> None:
        await (await from_token(elsewhere(world), lease.token())).commit(tpm=30)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run_block(limiter, fail_after_an_end_elsewhere)
    assert await used(world) == {"rpm": 1, "tpm": 30}


async def test_a_block_that_fails_keeps_its_charge_if_it_is_told_to(
    world: World, limiter: RateLimiter
) -> None:
    async def adjust_and_fail(lease: Lease) -> None:
        await lease.adjust(tpm=-100)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run_block(limiter, adjust_and_fail, on_error="keep")
    assert await used(world) == {"rpm": 1, "tpm": 400}


async def test_a_further_charge_that_is_refused_changes_nothing(
    world: World, limiter: RateLimiter
) -> None:
    lease = await reserve(limiter)
    with pytest.raises(RateLimitExceeded):
        await lease.consume(tpm=501)
    await lease.commit()
    assert await used(world) == WANTED


async def test_a_lease_without_a_receipt_has_an_id_and_no_token(limiter: RateLimiter) -> None:
    lease = await limiter.reserve("key-1", "gpt-4", WANTED)
    other = await limiter.reserve("key-1", "gpt-4", {"rpm": 1})
    assert lease.id == lease.id != other.id
    with pytest.raises(ValidationError, match="lease_ttl"):
        lease.token()
    await lease.release()
    await other.release()


async def test_an_ended_lease_has_no_token(limiter: RateLimiter) -> None:
    lease = await reserve(limiter)
    await lease.commit()
    with pytest.raises(LeaseExpiredError):
        lease.token()


async def test_a_lease_that_was_handed_over_warns_nobody(
    world: World, limiter: RateLimiter
) -> None:
    token = (await reserve(limiter)).token()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()
    with pytest.warns(ResourceWarning, match="was never ended"):
        await from_token(elsewhere(world), token)


NAMESPACE_TOKEN = encode_token(LeaseToken(ReceiptKey("elsewhere", "LEASE#1"), "1"))


@pytest.mark.parametrize(
    "token",
    [
        "",
        "zael1.",
        "zael1.!!!!",
        "zael1.////",
        "zael1." + "A" * 10_000,
        "zael2.YQ",
        "\ud800",
        "größer",
        NAMESPACE_TOKEN + "=",
        NAMESPACE_TOKEN + "\n",
        NAMESPACE_TOKEN,
        None,
        7,
        b"zael1.",
        encode_token(LeaseToken(ReceiptKey("n", "KEY#" + "x" * 256), "h")),
        encode_token(LeaseToken(ReceiptKey("n", "BUCKET#x"), "h")),
        encode_token(LeaseToken(ReceiptKey("n", "KEY#a\x00"), "h")),
        encode_token(LeaseToken(ReceiptKey("n", "KEY#a"), "")),
        encode_token(LeaseToken(ReceiptKey("", "KEY#a"), "h")),
        encode_token(LeaseToken(ReceiptKey("n\nn", "KEY#a"), "h")),
    ],
)
async def test_a_hostile_token_is_refused_by_name(limiter: RateLimiter, token: Any) -> None:
    with pytest.raises(ValidationError, match="Invalid token"):
        await from_token(limiter, token)


async def test_a_token_of_an_unknown_lease_or_holder_has_expired(
    world: World, limiter: RateLimiter
) -> None:
    lease = await limiter.reserve("key-1", "gpt-4", WANTED, idempotency_key="k")
    namespace_id = world.repository.namespace_id
    for name in ("LEASE#1", "KEY#other", "KEY#k"):
        forged = encode_token(LeaseToken(ReceiptKey(namespace_id, name), "guessed"))
        with pytest.raises(LeaseExpiredError):
            await from_token(limiter, forged)
    await lease.commit()


async def test_the_text_of_a_bad_token_is_in_no_message() -> None:
    limiter = RateLimiter(await Repository.open(url="memory://"))
    with pytest.raises(ValidationError) as error:
        await Lease.from_token(limiter, "zael1.secret")
    assert "secret" not in f"{error.value} {error.value.value}"
    await limiter.close()


async def test_a_limiter_of_the_other_driver_is_refused() -> None:
    limiter = RateLimiter(await Repository.open(url="memory://"))
    blocking = SyncRateLimiter(SyncRepository.open(url="memory://"))
    wrong: Any
    for wrong in (blocking, blocking.repository, None):
        with pytest.raises(ValidationError, match="Invalid limiter"):
            await Lease.from_token(wrong, NAMESPACE_TOKEN)
    for wrong in (limiter, "limiter"):
        with pytest.raises(ValidationError, match="Invalid limiter"):
            SyncLease.from_token(wrong, NAMESPACE_TOKEN)
    await limiter.close()
    blocking.close()
