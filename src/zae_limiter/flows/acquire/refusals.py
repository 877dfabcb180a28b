"""Buckets known to be short: who asks again too soon is refused without a call.

After a refusal the bucket is remembered as it was, for a second at most. Until then only
time makes a request fit, and how much time is known. Whatever this process writes to the
bucket drops the memory; what others write is noticed when the second is over.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...core.bucket import Bucket, BucketAddress, refill
from ...core.judge import judge_shards
from ...local.bounded import Bounded
from ...local.forks import new_lock
from .charge import Charge, Shortage

MAX_REMEMBERED = 10_000
DEFAULT_TTL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Memory:
    shards: Sequence[Bucket]
    until_ms: int


@dataclass(slots=True)
class Refusals:
    """What this process was lately refused. `ttl_seconds` of nothing remembers nothing.

    `corrections` counts what this process gave back or corrected, at any bucket, and `recalled`
    the requests that were refused without a call.
    """

    ttl_seconds: float = DEFAULT_TTL_SECONDS
    recalled: int = 0
    corrections: int = 0
    _short: Bounded[BucketAddress, _Memory] = field(default_factory=lambda: Bounded(MAX_REMEMBERED))
    _corrected: Bounded[BucketAddress, int] = field(default_factory=lambda: Bounded(MAX_REMEMBERED))
    _deleted: int = 0
    _lock: threading.Lock = field(default_factory=new_lock)

    @property
    def is_empty(self) -> bool:
        """True when nothing is remembered."""
        return not self._short.keys

    def recall(self, charge: Charge, now_ms: int) -> Shortage | None:
        """The refusal that the store would answer with, if that is known."""
        memory = self._short.get(charge.address.home)
        if memory is None or not self._holds(memory, charge, now_ms):
            return None
        shards = [refill(bucket, now_ms) for bucket in memory.shards]
        wait_ms = judge_shards(shards, charge.intent.takes_milli).wait_ms
        return Shortage(charge, shards, wait_ms) if wait_ms else None

    def _holds(self, memory: _Memory, charge: Charge, now_ms: int) -> bool:
        known = memory.shards[0].fingerprint == charge.limits.fingerprint
        return known and now_ms < memory.until_ms

    def keep(self, short: Shortage, now_ms: int, corrections: int) -> None:
        """Remember a refusal of the store's, unless the bucket was corrected since there were
        only so many corrections: the refusal may be older than that."""
        if not self.ttl_seconds or not short.shards:
            return
        home = short.charge.address.home
        memory = _Memory(short.shards, now_ms + int(self.ttl_seconds * 1000))
        with self._lock:
            if max(self._corrected.get(home, 0), self._deleted) <= corrections:
                self._short.put(home, memory)

    def forget(self, address: BucketAddress) -> None:
        """The bucket is no longer as it was."""
        if self._short.keys:
            self._short.discard(address.home)

    def correct(self, address: BucketAddress) -> None:
        """Tokens came back, or something else was corrected."""
        if not self.ttl_seconds:
            return
        home = address.home
        with self._lock:
            self.corrections += 1
            self._corrected.discard(home)
            self._corrected.put(home, self.corrections)
            self._short.discard(home)

    def delete(self, namespace_id: str, entity_id: str) -> None:
        """All buckets of an entity are gone."""
        with self._lock:
            self.corrections += 1
            self._deleted = self.corrections
            self._short.discard_where(lambda home: home[:2] == (namespace_id, entity_id))
