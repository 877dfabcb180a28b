"""Questions about many rows hold up nobody who writes, and their sums are exact."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from bench.questions import fill

from tests.support.sqlite import ADDRESS, create, opened, take_one, taken
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.ports.repository_protocol import UsageQuery
from zae_limiter.runtime.blocking import run

MANY = 12_000


def test_a_writer_does_not_wait_for_a_question(tmp_path: Path) -> None:
    asked, answered = threading.Event(), threading.Event()

    with opened(tmp_path / "limits.db") as store:
        create(store)

        def wait(db: sqlite3.Connection) -> int:
            (before,) = db.execute("SELECT count(*) FROM buckets").fetchone()
            asked.set()
            assert answered.wait(20)
            return int(before)

        thread = threading.Thread(target=lambda: run(store.usage._reader.read(wait)))
        thread.start()
        try:
            assert asked.wait(20)
            take_one(store)
            assert taken(store) == 1
        finally:
            answered.set()
            thread.join()


def test_a_sum_over_many_entities_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    with opened(path) as store:
        create(store, BucketAddress("ns", "first", "gpt-4"))
        take_one(store, BucketAddress("ns", "first", "gpt-4"))
        fill(path, MANY - 1)
        hourly = UsageQuery(resource="gpt-4", window_type="hourly")
        found = run(store.usage.summary("ns", hourly))
        assert (found.snapshot_count, found.total) == (2 * MANY, {"rpd": 2 * MANY})
        page, cursor = run(store.usage.read("ns", hourly, 10, None))
        assert len(page) == 10
        assert cursor is not None


def test_a_question_asked_page_by_page_scans_no_table_twice(tmp_path: Path) -> None:
    """The plan of each page begins where the last one ended."""
    path = tmp_path / "limits.db"
    with opened(path) as store:
        create(store, ADDRESS)
    from zae_limiter.backends.sqlite import buckets

    with closing(sqlite3.connect(path)) as db:
        values = ("ns", "gpt-4", "a")
        steps = db.execute(f"EXPLAIN QUERY PLAN {buckets._SELECT_ENTITIES_AFTER}", values)
        plan = "\n".join(step[3] for step in steps)
    assert "entity_id>?" in plan
    assert "TEMP B-TREE" not in plan
