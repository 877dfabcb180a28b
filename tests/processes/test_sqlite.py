"""Real processes on one SQLite file, some of them killed: no promise of section 4 breaks."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.worker import ENTITIES, RESOURCE
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.testing import Event, assert_window_theorem

pytestmark = pytest.mark.slow

LIMITS = [Limit.per_second("requests", 60, burst=90), Limit.per_second("tokens", 900, burst=1200)]
SECONDS = 4.0
Line = dict[str, Any]


def start(url: str, book: Path, seed: int) -> subprocess.Popen[bytes]:
    driver = ("asyncio", "threads")[seed % 2]
    command = [sys.executable, "-m", "tests.support.worker", url, str(book)]
    return subprocess.Popen([*command, str(SECONDS), str(seed), driver])


def read_books(folder: Path) -> Iterator[list[Line]]:
    """The lines of each task, in order; a line that a kill cut off is no line."""
    for path in sorted(folder.glob("book-*")):
        whole = path.read_bytes().rsplit(b"\n", 1)[0]
        yield [json.loads(line) for line in whole.splitlines()]


def movements(book: list[Line]) -> Iterator[tuple[Line, dict[str, int], bool]]:
    """Each line with what it moved in millitokens. A refund gives back all that was taken for
    the call it ends."""
    held: dict[str, int] = defaultdict(int)
    for line in book:
        if line["kind"] == "taken":
            if "requests" in line["amounts"]:
                held.clear()
            for name, amount in line["amounts"].items():
                held[name] += amount * 1000
            yield line, {n: amount * 1000 for n, amount in line["amounts"].items()}, True
        elif line["kind"] == "refunded":
            yield line, {name: -amount for name, amount in held.items()}, False
        else:
            yield line, {n: amount * 1000 for n, amount in line["amounts"].items()}, False


def histories(folder: Path) -> tuple[dict[str, list[Event]], int]:
    """What each bucket let out, by the workers' own books, and how long the longest call took."""
    found: dict[str, list[Event]] = defaultdict(list)
    longest_ms = 0
    for book in read_books(folder):
        for line, moved_milli, admitted in movements(book):
            longest_ms = max(longest_ms, line["ended_ms"] - line["began_ms"])
            # What was taken counts when it was answered, what came back when it was sent: the
            # longest call is added to the time that every interval is allowed.
            at_ms = line["ended_ms"] if admitted else line["began_ms"]
            for bucket in (line["entity_id"], "org"):
                found[bucket] += [
                    Event(at_ms, name, n, admitted) for name, n in moved_milli.items() if n
                ]
    for events in found.values():
        events.sort(key=lambda event: event.at_ms)
    return found, longest_ms


@pytest.mark.parametrize("killed", [0, 2])
def test_four_processes_keep_every_limit(tmp_path: Path, killed: int) -> None:
    url = f"sqlite:///{tmp_path}/limits.db"
    limiter = SyncRateLimiter(repository=SyncRepository.open(url=url))
    limiter.set_system_defaults(LIMITS)
    limiter.create_entity("org")
    for entity_id in ENTITIES:
        limiter.create_entity(entity_id, parent_id="org", cascade=True)
    workers = [start(url, tmp_path / f"book-{seed}", seed) for seed in range(4)]
    time.sleep(SECONDS * 0.6)
    for worker in workers[:killed]:
        worker.send_signal(signal.SIGKILL)
    codes = [worker.wait(timeout=60) for worker in workers]
    assert codes == [-signal.SIGKILL] * killed + [0] * (4 - killed)

    found, longest_ms = histories(tmp_path)
    assert len(found["org"]) > 200
    assert_window_theorem(found, LIMITS, skew_ms=2 * longest_ms)
    assert_books_agree(limiter, found, killed)
    with limiter.acquire("key-1", RESOURCE, {"requests": 1}, timeout=10):
        pass
    limiter.close()


def assert_books_agree(
    limiter: SyncRateLimiter, found: dict[str, list[Event]], killed: int
) -> None:
    """The store charged what the books say, and beyond that only what the killed were doing."""
    for bucket in ("org", *ENTITIES):
        for state in limiter.repository.get_buckets(bucket, RESOURCE):
            booked = sum(e.amount_milli for e in found[bucket] if e.limit_name == state.limit_name)
            charged = state.total_consumed_milli
            assert charged is not None
            in_flight = killed * 6 * 60_000
            assert abs(charged - booked) <= in_flight, (bucket, state.limit_name)
