"""A write that hung for long at a silent store is not sent again."""

from __future__ import annotations

import pytest

from zae_limiter import Limit, RateLimiterUnavailable, SyncRateLimiter, SyncRepository
from zae_limiter.backends.memory import MemoryStore
from zae_limiter.core.bucket import Bucket, BucketAddress
from zae_limiter.core.exceptions import StorageUnavailable
from zae_limiter.core.writes import Outcome, Write
from zae_limiter.testing import ManualClock


class Swamp:
    """A store that loses writes, each after so many seconds, and answers when it is asked."""

    def __init__(self, seconds: float) -> None:
        self.clock = ManualClock()
        self.repository = SyncRepository.open(url="memory://", clock=self.clock)
        self.limiter = SyncRateLimiter(self.repository, default_limits=[Limit.per_day("rpd", 10)])
        self.calls: list[str] = []
        self._seconds = seconds
        store = self.repository.scope.store
        assert isinstance(store, MemoryStore)
        self._fence = store.buckets.fence
        store.buckets.write = self.write  # type: ignore[method-assign]
        store.buckets.fence = self.fence  # type: ignore[method-assign]

    async def write(self, address: BucketAddress, write: Write) -> Outcome:
        self.calls.append("write")
        self.clock.advance(self._seconds)
        raise StorageUnavailable("no answer in time", ambiguous=True)

    async def fence(self, address: BucketAddress, operation: str) -> Bucket | None:
        self.calls.append("fence")
        return await self._fence(address, operation)


@pytest.mark.parametrize(
    ("seconds", "calls"), [(4, ["write", "fence"]), (0.01, ["write", "fence"] * 4)]
)
def test_a_write_is_looked_up_once_and_sent_again_only_if_it_failed_quickly(
    seconds: float, calls: list[str]
) -> None:
    swamp = Swamp(seconds)
    with pytest.raises(RateLimiterUnavailable):
        swamp.limiter.acquire("key", "api", {"rpd": 1}).__enter__()
    assert swamp.calls == calls
