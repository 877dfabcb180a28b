"""Raiders hold a parent's tokens in vain: requests that a stale image lets them charge in parallel.

For each key, the raider sees that the key has what it will ask for. Then another client takes it.
So the raider charges key and parent at the same time, the key refuses, and the parent is given back
what it was charged. No raid comes to pass, so nobody else may be refused for one.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.attacks.effort import LONGEST_S, note_tried
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository

# The tokens of the parent.
PARENT = 900
_MONTH_S = 30 * 86400
_KEYS_AHEAD = 8
_LONGEST_S = 120


def _monthly(name: str, capacity: int) -> Limit:
    return Limit.custom(name, capacity=capacity, refill_amount=1, refill_period_seconds=_MONTH_S)


def _open(url: str, cache_ttl: float = 1.0) -> SyncRepository:
    """Open a store that may keep its clients waiting for long, because the machine is busy."""
    return SyncRepository.open(url=url, refusal_cache_ttl=cache_ttl, total_timeout=120)


def prepare(url: str) -> None:
    """An organisation with what a raid asks for, and an innocent key below it."""
    with _open(url) as repository:
        limiter = SyncRateLimiter(repository)
        repository.set_system_defaults([_monthly("x", 1), _monthly("t", 10**7)])
        repository.set_limits("org", [_monthly("t", PARENT)])
        limiter.create_entity("org")
        limiter.create_entity("good", parent_id="org", cascade=True)


def raid(url: str, name: str, amount: int, seconds: float) -> None:
    """Raid one key after the other."""
    with _open(url) as own, _open(url) as others:
        raider, thief = SyncRateLimiter(own), SyncRateLimiter(others)
        ends_s, raids = time.monotonic() + seconds, 0
        while time.monotonic() < ends_s:
            keys = [f"{name}-{raids + number}" for number in range(_KEYS_AHEAD)]
            for key in keys:
                raider.create_entity(key, parent_id="org", cascade=True)
                for limiter, taken in ((raider, 0), (thief, 1)):
                    with limiter.acquire(key, "api", {"x": taken, "t": 0}):
                        pass
            for key in keys:
                raids += 1
                try:
                    with raider.acquire(key, "api", {"x": 1, "t": amount}):
                        raise AssertionError("a raid came to pass")
                except RateLimitExceeded:
                    pass


@contextmanager
def raiders(url: str, count: int, amount: int) -> Iterator[None]:
    """So many processes that raid."""
    command = [sys.executable, "-m", "tests.attacks.raiders", url]
    processes = [
        subprocess.Popen(
            [*command, f"r{number}", str(amount), str(_LONGEST_S)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def refusals(url: str, entity_id: str, amount: int, calls: int, cache_ttl: float) -> int:
    """Ask for tokens that are there, and give them back, so many times. Returns the refusals."""
    ends_s, refused, number = time.monotonic() + LONGEST_S, 0, 0
    with _open(url, cache_ttl) as repository:
        limiter = SyncRateLimiter(repository)
        while number < calls and time.monotonic() < ends_s:
            number += 1
            try:
                with limiter.acquire(entity_id, "api", {"t": amount}) as lease:
                    lease.release(t=amount)
            except RateLimitExceeded:
                refused += 1
    note_tried("calls beside raiders", number)
    return refused


if __name__ == "__main__":
    print("ready", flush=True)
    raid(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
