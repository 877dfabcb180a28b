"""This program's main thread gets an interrupt while writes wait for each other.

    python -m tests.support.interrupted URL waiting|follower|leader|refund

The program says `ready` when the interrupt may come, goes on when it reads a line, and prints the
outcomes as JSON.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from tests.support.crowd import Gate, SlowBuckets, SlowStore
from zae_limiter import Limit, RateLimiterUnavailable, SyncRateLimiter, SyncRepository
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.writes import Write
from zae_limiter.ports.repository_protocol import RepositoryProtocol

LIMIT = Limit.per_day("rpm", 1000)


class Scene:
    """A scene has one write at the first gate, and the next write will be at the second."""

    def __init__(self, url: str) -> None:
        origin = SyncRepository.open(url=url)
        store = origin.scope.store
        self.buckets = SlowBuckets(store.buckets, Gate("blocking"))
        slow = cast(RepositoryProtocol, SlowStore(store, self.buckets))
        self.repository = SyncRepository.on_scope(
            replace(origin.scope, store=slow), "default", owns_store=True
        )
        self.limiter = SyncRateLimiter(self.repository, default_limits=[LIMIT])
        self.home = BucketAddress(origin.namespace_id, "key", "gpt-4")
        self.later = Gate("blocking")
        self.outcomes: dict[str, str] = {}
        self.threads: list[threading.Thread] = []
        self.take(0)

    def take(self, amount: int) -> None:
        with self.limiter.acquire("key", "gpt-4", {"rpm": amount}):
            pass

    def note(self, name: str, work: Callable[[], None]) -> None:
        """Run a call, and remember its outcome."""
        try:
            work()
            self.outcomes[name] = "served"
        except RateLimiterUnavailable:
            self.outcomes[name] = "unavailable"
        except KeyboardInterrupt:
            self.outcomes[name] = "interrupted"

    def in_thread(self, name: str, amount: int) -> None:
        """Begin a call in a thread, and return when it is queued."""
        before = self.in_line()
        work = threading.Thread(target=self.note, args=(name, lambda: self.take(amount)))
        self.threads.append(work)
        work.start()
        wait_until(lambda: self.in_line() > before)

    def in_line(self) -> int:
        """Return how many callers wait for the item or write to it."""
        queues = self.repository.scope.local.write_queues
        return len(queues._queues.get(self.home, ())) + (self.home in queues._owners)

    def close_gates(self) -> None:
        self.buckets.gate.close()
        self.later.close()
        count = 0

        async def second(address: BucketAddress, write: Write) -> None:
            nonlocal count
            count += 1
            if count > 1:
                await self.later.passed()

        self.buckets.before = second

    def tell(self, *, opening: bool) -> None:
        """Beside the main thread: let the first write through if asked to, say that it may be
        interrupted, and open all gates when told to."""
        wait_until(lambda: self.in_line() == 4)
        if opening:
            self.buckets.gate.open()
            wait_until(lambda: self.in_line() == 1)
        print("ready", flush=True)
        sys.stdin.readline()
        self.buckets.gate.open()
        self.later.open()

    def report(self) -> dict[str, Any]:
        for thread in self.threads:
            thread.join(timeout=20)
        self.note("after", lambda: self.take(1))
        bucket = asyncio.run(_read(self.repository, self.home))
        tokens = bucket.cells["rpm"].tokens_milli // 1000
        return {**self.outcomes, "left": tokens, "acquires": bucket.acquires}


async def _read(repository: SyncRepository, home: BucketAddress) -> Any:
    return (await repository.scope.store.buckets.read([home]))[home]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def main() -> None:
    # Without this, a parent that ignores interrupts would make this process ignore them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    url, role = sys.argv[1:]
    scene = Scene(url)
    held = scene.limiter.acquire("key", "gpt-4", {"rpm": 100})
    if role == "refund":
        held.__enter__()
    scene.close_gates()
    scene.in_thread("first", 1)
    if role == "follower":
        scene.in_thread("second", 1)
    others = {"follower": 1, "leader": 2, "waiting": 2, "refund": 2}[role]
    crew = threading.Thread(target=crew_of, args=(scene, role, others))
    crew.start()

    def act() -> None:
        if role == "refund":
            held.__exit__(LookupError, LookupError(), None)
        else:
            scene.take(10)

    scene.note("main", act)
    crew.join()
    print(json.dumps(scene.report()), flush=True)


def crew_of(scene: Scene, role: str, others: int) -> None:
    """Come behind the main thread, then tell."""
    ahead = 2 if role == "follower" else 1
    wait_until(lambda: scene.in_line() == ahead + 1)
    for number in range(others):
        scene.in_thread(f"other-{number}", 1)
    scene.tell(opening=role in ("follower", "leader"))


if __name__ == "__main__":
    main()
