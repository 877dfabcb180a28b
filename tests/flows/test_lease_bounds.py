"""A lease gives back no more than it took, and is entered and ended once."""

from __future__ import annotations

import asyncio
import sys
import threading
from types import FrameType

import pytest

from tests.support.crowd import crowd, until
from tests.support.drivers import Driver, World, balance, take
from zae_limiter import (
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

RPM = Limit.per_day("rpm", 100)
TPM = Limit.per_day("tpm", 1000)


@pytest.fixture
async def limiter(world: World) -> RateLimiter:
    """An organisation that is used up, and a key below it that is not."""
    await world.repository.set_system_defaults([RPM, TPM])
    await world.repository.create_entity("org")
    await world.repository.create_entity("key-1", parent_id="org", cascade=True)
    limiter = world.limiter()
    await take(limiter, "org", rpm=100, tpm=990)
    return limiter


async def balances(repository: Repository) -> list[dict[str, int]]:
    return [await balance(repository, entity) for entity in ("key-1", "org")]


async def test_a_release_of_more_than_was_taken_is_refused_before_any_write(
    world: World, limiter: RateLimiter
) -> None:
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 0, "tpm": 5}) as lease:
        before = await balances(world.repository)
        for amounts in ({"rpm": 10**6}, {"rpm": 1}, {"tpm": 6}):
            with pytest.raises(ValidationError, match="more than the lease holds") as refused:
                await lease.release(**amounts)
            assert refused.value.field == f"release[{next(iter(amounts))!r}]"
            with pytest.raises(ValidationError, match="more than the lease holds"):
                await lease.adjust(**{name: -amount for name, amount in amounts.items()})
    assert await balances(world.repository) == before


async def test_corrections_in_any_order_never_give_back_more_than_was_taken(
    world: World, limiter: RateLimiter
) -> None:
    async with limiter.acquire("key-1", "gpt-4", {"tpm": 2}) as lease:
        await lease.adjust(tpm=3)
        await lease.release(tpm=4)
        await lease.consume(tpm=2)
        with pytest.raises(ValidationError):
            await lease.release(tpm=4)
        await lease.release(tpm=3)
        assert lease.consumed["tpm"] == 0
    assert await balances(world.repository) == [
        {"rpm": 100_000, "tpm": 1_000_000},
        {"rpm": 0, "tpm": 10_000},
    ]


async def test_a_refused_correction_leaves_the_earlier_ones_as_they_were(
    world: World, limiter: RateLimiter
) -> None:
    async with limiter.acquire("key-1", "gpt-4", {"tpm": 4}) as lease:
        await lease.release(tpm=1)
        with pytest.raises(ValidationError):
            await lease.adjust(tpm=1, rpm=-1)
    assert (await balances(world.repository))[0]["tpm"] == 997_000


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_a_consume_that_lands_after_its_block_failed_is_given_back(
    driver: Driver, store: str, tmp_path: object
) -> None:
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path}/limits.db"
    async with crowd(driver, url, [RPM]) as it:
        acquisition = it.limiter.acquire("key-1", "gpt-4", {"rpm": 10})
        lease = await acquisition.__aenter__()
        late = await it.at_gate(lease.consume(rpm=5))
        ended = it.call(acquisition.__aexit__(ValueError, ValueError(), None))
        await until(lambda: ended.done() or it.in_line() > 0)
        it.buckets.gate.open()
        with pytest.raises(LeaseExpiredError):
            await late
        await ended
        await until(lambda: not it.scope.local.write_queues._owners)
        assert await it.tokens() == 100_000


async def test_an_acquisition_cannot_be_entered_while_it_is_entered(
    world: World, limiter: RateLimiter
) -> None:
    acquisition = limiter.acquire("key-1", "gpt-4", {"tpm": 3})
    async with acquisition:
        with pytest.raises(ValidationError, match="is entered already"):
            await acquisition.__aenter__()
    assert (await balances(world.repository))[0]["tpm"] == 997_000


async def test_an_acquisition_that_was_refused_can_be_entered_again(
    world: World, limiter: RateLimiter
) -> None:
    acquisition = limiter.acquire("key-1", "gpt-4", {"tpm": 20})
    for _ in range(2):
        with pytest.raises(RateLimitExceeded):
            await acquisition.__aenter__()


async def test_of_two_tasks_that_enter_one_acquisition_one_is_refused() -> None:
    async with await Repository.open(url="memory://") as repository:
        limiter = RateLimiter(repository, default_limits=[RPM])
        acquisition = limiter.acquire("key-1", "gpt-4", {"rpm": 1})

        async def enter() -> bool:
            try:
                async with acquisition:
                    await asyncio.sleep(0)
                    return True
            except (ValidationError, RateLimitExceeded):
                return False

        assert sorted(await asyncio.gather(enter(), enter())) == [False, True]
        assert (await balance(repository))["rpm"] == 99_000


def test_an_interrupt_between_the_charge_and_the_block_gives_the_charge_back() -> None:
    with SyncRepository.open(url="memory://") as repository:
        limiter = SyncRateLimiter(repository, default_limits=[RPM])

        def interrupt(frame: FrameType, event: str, argument: object) -> None:
            names = [each.f_code.co_name for each in (frame, frame.f_back) if each is not None]
            if names == ["__init__", "open_lease"]:
                sys.settrace(None)
                raise KeyboardInterrupt

        sys.settrace(interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                limiter.acquire("key-1", "gpt-4", {"rpm": 7}).__enter__()
        finally:
            sys.settrace(None)
        (state,) = repository.get_buckets("key-1", "gpt-4")
        assert (state.tokens_milli, state.total_consumed_milli) == (100_000, 0)


def test_threads_that_share_a_lease_give_back_no_more_than_it_took() -> None:
    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with SyncRateLimiter(repository=SyncRepository.open(url="memory://")) as limiter:
            limiter.set_system_defaults([TPM])
            for _ in range(300):
                _release_by_threads(limiter)
            assert limiter.available("key-1", "gpt-4") == {"tpm": 1000}
    finally:
        sys.setswitchinterval(switch_s)


def _release_by_threads(limiter: SyncRateLimiter) -> None:
    """Four threads release all of a lease of ten; one of them may."""
    released: list[bool] = []
    gate = threading.Barrier(4)

    def release(lease: SyncLease) -> None:
        gate.wait()
        try:
            lease.release(tpm=10)
            released.append(True)
        except ValidationError:
            released.append(False)

    with limiter.acquire("key-1", "gpt-4", {"tpm": 10}) as lease:
        threads = [threading.Thread(target=release, args=(lease,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(released) == [False, False, False, True]
