"""What a bucket takes of memory: what all buckets of a limit share is kept once."""

from __future__ import annotations

import gc
import tracemalloc

from zae_limiter import Limit, SyncRateLimiter, SyncRepository

BUCKETS = 2_000
LIMITS = [Limit.per_minute("rpm", 1_000_000), Limit.per_minute("tpm", 100_000_000)]


def test_a_bucket_of_two_limits_is_small() -> None:
    with SyncRepository.open(url="memory://") as repository:
        limiter = SyncRateLimiter(repository)
        limiter.set_system_defaults(LIMITS)
        acquire_for(limiter, 0, 1)
        tracemalloc.start()
        try:
            acquire_for(limiter, 1, BUCKETS + 1)
            gc.collect()
            held_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert held_bytes / BUCKETS < 1_300


def acquire_for(limiter: SyncRateLimiter, first: int, end: int) -> None:
    for number in range(first, end):
        with limiter.acquire(f"entity-{number}", "gpt-4", {"rpm": 1, "tpm": 100}):
            pass


def test_buckets_share_what_describes_their_limits() -> None:
    with SyncRepository.open(url="memory://") as repository:
        limiter = SyncRateLimiter(repository)
        limiter.set_system_defaults(LIMITS)
        acquire_for(limiter, 0, 2)
        here, there = repository.scope.store.buckets._tables.buckets.values()  # type: ignore[attr-defined]
    for name in ("rpm", "tpm"):
        mine, others = here.cells[name], there.cells[name]
        assert mine.rate is others.rate
