"""Real processes whose system clock is wrong, or steps while they run, beside one that is right."""

from __future__ import annotations

import contextlib
import time

import pytest

from tests.support.drivers import SHARED, World
from tests.support.programs import output_of
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.runtime.blocking import run

TEN = Limit.per_second("tps", 10)
WRONG = """
import logging, sys, time
logging.disable()
url, before_s, after_s = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
right, right_ns, ahead_s = time.time, time.time_ns, before_s
time.time = lambda: right() + ahead_s
time.time_ns = lambda: right_ns() + int(ahead_s * 1e9)
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
ten = Limit.per_second("tps", 10)
with SyncRepository.open(url=url) as repository:
    limiter = SyncRateLimiter(repository)
    for ahead_s in (before_s, after_s, after_s):
        try:
            with limiter.acquire("key", "gpt-4", {"tps": 1}, limits=[ten]):
                pass
        except RateLimitExceeded:
            pass
"""


def admitted(limiter: SyncRateLimiter, seconds: float) -> int:
    """How many acquires are admitted in so much real time."""
    count, end_s = 0, time.monotonic() + seconds
    while time.monotonic() < end_s:
        with (
            contextlib.suppress(RateLimitExceeded),
            limiter.acquire("key", "gpt-4", {"tps": 1}, limits=[TEN]),
        ):
            count += 1
        time.sleep(0.01)
    return count


@pytest.mark.slow
@pytest.mark.parametrize("store_kind", SHARED, indirect=True)
@pytest.mark.parametrize("driver", ["blocking"], indirect=True)
@pytest.mark.parametrize("step_s", [3600, -3600, 31_622_400, -31_622_400])
@pytest.mark.parametrize("starts_wrong", [True, False], ids=["from the start", "while it runs"])
async def test_a_process_with_a_wrong_clock_starves_nobody(
    world: World, step_s: int, starts_wrong: bool
) -> None:
    output_of(WRONG, world.url, str(step_s if starts_wrong else 0), str(step_s))
    with SyncRepository.open(url=world.url) as repository:
        limiter = SyncRateLimiter(repository)
        admitted(limiter, 1)
        assert 15 <= admitted(limiter, 2) <= 31
        address = BucketAddress(repository.namespace_id, "key", "gpt-4")
        item = run(repository.scope.store.buckets.read([address]))[address]
        assert abs(item.refilled_at_ms - 1000 * time.time()) < 5000
