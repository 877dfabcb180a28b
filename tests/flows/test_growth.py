"""An acquire makes the same calls however many entities there are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.backends.memory import MemoryStore
from zae_limiter.flows.scope import MAX_IMAGES
from zae_limiter.local.bounded import Bounded
from zae_limiter.testing import ManualClock

# Slow enough that buckets are not full again before they are next used.
LIMITS = [Limit.per_day("rpd", 10_000), Limit.per_day("tpd", 10_000_000)]
FEW, MANY = 100, 20_000


class CountingStore:
    """A counting store counts the calls of its roles."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.calls: list[str] = []
        self.buckets = self.counting("buckets")
        self.configs = self.counting("configs")

    def counting(self, role: str) -> Any:
        return _CountingRole(role, getattr(self.store, role), self.calls)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class _CountingRole:
    def __init__(self, name: str, role: Any, calls: list[str]) -> None:
        self._name = name
        self._role = role
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._role, name)
        if callable(found):
            self._calls.append(f"{self._name}.{name}")
        return found


@pytest.mark.parametrize("entities", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_each_acquire_is_one_call_however_many_entities_there_are(entities: int) -> None:
    clock = ManualClock()
    with SyncRepository.open(url="memory://", clock=clock) as opened:
        opened.set_system_defaults(LIMITS)
        assert isinstance(opened.scope.store, MemoryStore)
        store = CountingStore(opened.scope.store)
        # The memory store would show its buckets. Other processes remember images of them.
        images: Any = Bounded(MAX_IMAGES)
        scope = replace(opened.scope, store=store, local=replace(opened.scope.local, images=images))
        limiter = SyncRateLimiter(
            SyncRepository.on_scope(scope, opened.namespace_name, owns_store=False)
        )
        acquire_for_all(limiter, entities)
        clock.advance(1)
        store.calls.clear()
        acquire_for_all(limiter, entities)
        assert store.calls == ["buckets.write"] * entities


def acquire_for_all(limiter: SyncRateLimiter, entities: int) -> None:
    for number in range(entities):
        with limiter.acquire(f"entity-{number}", "gpt-4", {"rpd": 1, "tpd": 1_000}):
            pass
