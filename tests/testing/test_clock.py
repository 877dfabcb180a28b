from __future__ import annotations

import subprocess
import sys

import pytest

from zae_limiter import Limit, RateLimiter, RateLimitExceeded, SyncRateLimiter, testing
from zae_limiter.testing import ManualClock, memory_repository, sync_memory_repository

RPM = Limit.per_minute("rpm", 60)


def test_a_clock_moves_only_when_told() -> None:
    clock = ManualClock(1_000)
    clock.advance(1.5)
    assert clock.now_ms() == 2_500
    assert clock.pass_time(0.0015)
    assert clock.now_ms() == 2_502
    clock.advance(-2)
    assert clock.now_ms() == 502
    clock.set(7)
    assert clock.now_ms() == 7


async def test_a_limiter_in_memory_refills_as_the_clock_says() -> None:
    clock = ManualClock()
    async with RateLimiter(await memory_repository(clock=clock), default_limits=[RPM]) as limiter:
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 60}):
            pass
        clock.advance(0.999)
        with pytest.raises(RateLimitExceeded) as refused:
            await limiter.acquire("key-1", "gpt-4", {"rpm": 1}).__aenter__()
        assert refused.value.retry_after_seconds == 0.001
        clock.advance(0.001)
        assert await limiter.available("key-1", "gpt-4") == {"rpm": 1}


def test_a_clock_that_goes_back_takes_nothing_and_gives_nothing() -> None:
    clock = ManualClock()
    with SyncRateLimiter(sync_memory_repository(clock=clock), default_limits=[RPM]) as limiter:
        with limiter.acquire("key-1", "gpt-4", {"rpm": 50}):
            clock.advance(-3600)
        assert limiter.available("key-1", "gpt-4") == {"rpm": 10}
        with limiter.acquire("key-1", "gpt-4", {"rpm": 10}):
            clock.advance(3600 + 1)
        # The clock has leapt, and nobody knows from which wrong time: nothing is credited for that.
        with pytest.raises(RateLimitExceeded):
            limiter.acquire("key-1", "gpt-4", {"rpm": 1}).__enter__()
        clock.advance(1)
        assert limiter.available("key-1", "gpt-4") == {"rpm": 1}


async def test_repositories_in_memory_share_nothing() -> None:
    one, other = await memory_repository("team"), await memory_repository("team")
    await one.create_entity("key-1")
    assert one.namespace_name == "team"
    assert await other.get_entity("key-1") is None


def test_the_testing_package_needs_no_test_framework() -> None:
    program = (
        "import sys, zae_limiter.testing\n"
        "print(sorted({'pytest', '_pytest', 'hypothesis'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_everything_exported_exists() -> None:
    assert all(hasattr(testing, name) for name in testing.__all__)
