"""A write that hung for long at a silent store is not sent again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from zae_limiter import Limit, RateLimiterUnavailable, SyncRateLimiter, SyncRepository
from zae_limiter.backends.memory import MemoryStore
from zae_limiter.core.bucket import Bucket, BucketAddress
from zae_limiter.core.exceptions import StorageUnavailable
from zae_limiter.core.writes import Outcome, Write
from zae_limiter.testing import ManualClock


class Swamp:
    """A store that loses writes, each after so many seconds, and answers reads."""

    def __init__(self, seconds: float) -> None:
        self.clock = ManualClock()
        self.repository = SyncRepository.open(url="memory://", clock=self.clock)
        self.limiter = SyncRateLimiter(self.repository, default_limits=[Limit.per_day("rpd", 10)])
        self.calls: list[str] = []
        self._seconds = seconds
        store = self.repository.scope.store
        assert isinstance(store, MemoryStore)
        self._read = store.buckets.read
        store.buckets.write = self.write  # type: ignore[method-assign]
        store.buckets.read = self.read  # type: ignore[method-assign]

    async def write(self, address: BucketAddress, write: Write) -> Outcome:
        self.calls.append("write")
        self.clock.advance(self._seconds)
        raise StorageUnavailable("no answer in time", ambiguous=True)

    async def read(self, addresses: Sequence[BucketAddress]) -> dict[BucketAddress, Bucket]:
        self.calls.append("read")
        return await self._read(addresses)


@pytest.mark.parametrize(
    ("seconds", "calls"), [(4, ["write", "read"]), (0.01, ["write", "read"] * 4)]
)
def test_a_write_is_looked_up_once_and_sent_again_only_if_it_failed_quickly(
    seconds: float, calls: list[str]
) -> None:
    swamp = Swamp(seconds)
    with pytest.raises(RateLimiterUnavailable):
        swamp.limiter.acquire("key", "api", {"rpd": 1}).__enter__()
    assert swamp.calls == calls
