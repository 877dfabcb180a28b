"""The refusal cache: buckets that are known to be short.

After a refusal the bucket is remembered as it was, for a second at most. Until then only
time makes a request fit, and how much time is known. Whatever this process writes to the
bucket drops the memory; writes of other processes are noticed when the second is over.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field

from ...core.bucket import Bucket, BucketAddress, refill
from ...core.judge import judge_shards
from ...local.bounded import Bounded
from ...local.fork_safety import new_lock

MAX_REMEMBERED = 10_000
DEFAULT_REFUSAL_TTL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Memory:
    shards: Sequence[Bucket]
    since_ms: int
    until_ms: int


@dataclass(slots=True)
class RefusalCache:
    """Refusals of the store that this process was lately told. A lifetime of zero keeps nothing.

    `corrections` counts what this process gave back or corrected, at any bucket, and `recalled`
    the requests that were refused without a call, by namespace.
    """

    ttl_seconds: float = DEFAULT_REFUSAL_TTL_SECONDS
    max_entries: InitVar[int] = MAX_REMEMBERED
    recalled: Counter[str] = field(default_factory=Counter)
    corrections: int = 0
    _short: Bounded[BucketAddress, _Memory] = field(init=False)
    _corrected: Bounded[BucketAddress, int] = field(init=False)
    _deleted: int = 0
    _lock: threading.Lock = field(default_factory=new_lock)

    def __post_init__(self, max_entries: int) -> None:
        self._short = Bounded(max_entries)
        self._corrected = Bounded(max_entries)

    @property
    def is_empty(self) -> bool:
        """True when nothing is remembered."""
        return not self._short.keys

    def recall(
        self, home: BucketAddress, fingerprint: str, takes_milli: Mapping[str, int], now_ms: int
    ) -> list[Bucket] | None:
        """The bucket's items as they stand now, if they are known to be short of these amounts."""
        memory = self._short.get(home)
        # A refusal of the future is stale: the clock stepped back.
        if memory is None or not memory.since_ms <= now_ms < memory.until_ms:
            return None
        if memory.shards[0].fingerprint != fingerprint:
            return None
        shards = [refill(bucket, now_ms) for bucket in memory.shards]
        return None if judge_shards(shards, takes_milli).fits else shards

    def keep(
        self, home: BucketAddress, shards: Sequence[Bucket], now_ms: int, corrections: int
    ) -> None:
        """Remember a refusal of the store, unless the bucket was corrected since `corrections`
        was counted: the refusal may be older than the correction."""
        if not self.ttl_seconds or not shards:
            return
        memory = _Memory(shards, now_ms, now_ms + int(self.ttl_seconds * 1000))
        with self._lock:
            if max(self._corrected.get(home, 0), self._deleted) <= corrections:
                self._short.put(home, memory)

    def forget(self, home: BucketAddress) -> None:
        """Drop the memory of a bucket that is no longer as it was."""
        if self._short.keys:
            self._short.discard(home)

    def correct(self, home: BucketAddress) -> None:
        """Drop the memory of a bucket to which tokens came back, or which was charged late."""
        if not self.ttl_seconds:
            return
        with self._lock:
            self.corrections += 1
            self._corrected.discard(home)
            self._corrected.put(home, self.corrections)
            self._short.discard(home)

    def delete(self, namespace_id: str, entity_id: str) -> None:
        """Drop the memory of all buckets of an entity that is gone."""
        with self._lock:
            self.corrections += 1
            self._deleted = self.corrections
            self._short.discard_where(lambda home: home[:2] == (namespace_id, entity_id))
