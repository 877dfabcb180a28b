"""Usage counted from the real stream of a table is what the clients say they used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.books import ACQUIRES, Account, read_books
from tests.support.servers.tables import OwnTable
from tests.support.stream_client import LIMITS, NAMESPACE, RESOURCE, StreamTask
from tests.support.stream_reading import Replay, read_stream
from tests.support.table_crowd import ROOT
from zae_limiter import SyncRepository
from zae_limiter.backends.dynamodb.stream_records import decode_records
from zae_limiter.core.changes import BucketChange
from zae_limiter.core.limit import MILLI
from zae_limiter.core.models import UsageSnapshot
from zae_limiter.core.windows import WINDOW_TYPES, WindowType, iso, window_start

MINUTE_MS = 60_000
# The begin of a month.
TURN_MS = int(datetime(2024, 5, 1, tzinfo=UTC).timestamp() * 1000)
PROCESSES = 4
# 12,000 leases are 20,000 acquires, corrections and refunds, and take ten minutes.
LONG_STEPS = int(os.environ.get("ZAEL_STREAM_LEASES", "3000"))


@pytest.fixture
def repository(table: OwnTable) -> Any:
    with SyncRepository.open(NAMESPACE, url=table.url) as opened:
        opened.set_resource_defaults(RESOURCE, LIMITS)
        opened.create_entity("org")
        for child in ("child-1", "child-2"):
            opened.create_entity(child, parent_id="org", cascade=True)
        yield opened


def use(table: OwnTable, folder: Path, steps: int, until: Path | None = None) -> Account:
    """Let several processes make so many steps in all, and more until a file is there. Read their
    books."""
    books = [folder / f"{number}.book" for number in range(PROCESSES)]
    tasks = [
        StreamTask(
            table.url,
            str(book),
            steps // PROCESSES,
            seed,
            until=None if until is None else str(until),
        )
        for seed, book in enumerate(books)
    ]
    module = "tests.support.stream_client"
    running = [
        subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(asdict(task))],
            cwd=ROOT,
            stderr=subprocess.PIPE,
        )
        for task in tasks
    ]
    try:
        for process in running:
            said = process.communicate(timeout=900)[1]
            assert process.returncode == 0, said.decode()
    finally:
        for process in running:
            process.kill()
    account = read_books(books)
    assert account.open_steps == 0
    return account


def around_the_turn(changes: Sequence[BucketChange]) -> list[BucketChange]:
    """The changes a minute apart, half of them before the turn of a month."""
    middle = len(changes) // 2
    return [
        change._replace(at_ms=TURN_MS + MINUTE_MS * (number - middle))
        for number, change in enumerate(changes)
    ]


def totals(found: Sequence[UsageSnapshot]) -> Counter[str]:
    """What snapshots add up to, by entity and limit."""
    counted: Counter[str] = Counter()
    for snapshot in found:
        counted[f"{snapshot.entity_id} {ACQUIRES}"] += snapshot.total_events
        for name, amount in snapshot.counters.items():
            counted[f"{snapshot.entity_id} {name}"] += amount
    return counted


def by_window(changes: Sequence[BucketChange], window: WindowType) -> dict[str, Counter[str]]:
    """What the counters of the images moved by in each window, in millitokens."""
    found: dict[str, Counter[str]] = {}
    for change in changes:
        moved = found.setdefault(iso(window_start(window, change.at_ms)), Counter())
        for image, sign in ((change.after, 1), (change.before, -1)):
            if image is not None:
                moved[f"{change.address.entity_id} {ACQUIRES}"] += sign * image.acquires
                for name in ("rpm", "a-b.c"):
                    moved[f"{change.address.entity_id} {name}"] += (
                        sign * image.cells[name].consumed_milli
                    )
    return found


def whole(moved: Counter[str]) -> dict[str, int]:
    """Tokens, and no entity that used nothing."""
    in_tokens = {k: n if k.endswith(ACQUIRES) else n // MILLI for k, n in moved.items()}
    return {key: amount for key, amount in in_tokens.items() if amount}


def check_usage_against_books(
    table: OwnTable, repository: SyncRepository, folder: Path, steps: int
) -> Replay:
    account = use(table, folder, steps)
    label, records = read_stream(table)
    batch = decode_records(records, label)
    assert batch.skipped == 0
    changes = around_the_turn(batch.buckets)
    replay = Replay(table, changes, seed=steps)
    replay.run()
    for window in WINDOW_TYPES:
        found = snapshots_of(repository, window)
        assert +totals(found) == +account.charged, window
        for start, moved in by_window(changes, window).items():
            ours = totals([snapshot for snapshot in found if snapshot.window_start == start])
            assert {key: n for key, n in ours.items() if n} == whole(moved), (window, start)
    assert len({snapshot.window_start for snapshot in snapshots_of(repository, "monthly")}) == 2
    return replay


def snapshots_of(repository: SyncRepository, window: WindowType) -> list[UsageSnapshot]:
    """All snapshots of the resource, page by page."""
    found: list[UsageSnapshot] = []
    following: dict[str, Any] | None = None
    while True:
        page, following = repository.get_usage_snapshots(
            resource=RESOURCE, window_type=window, limit=50, next_key=following
        )
        found += page
        if following is None:
            return found


def test_usage_from_the_stream_equals_the_books_of_four_processes(
    table: OwnTable, repository: SyncRepository, tmp_path: Path
) -> None:
    check_usage_against_books(table, repository, tmp_path, steps=600)


@pytest.mark.slow
def test_usage_from_a_long_stream_equals_the_books_of_four_processes(
    table: OwnTable, repository: SyncRepository, tmp_path: Path
) -> None:
    replay = check_usage_against_books(table, repository, tmp_path, steps=LONG_STEPS)
    assert replay.killed > 3
    assert replay.redelivered > 100
