"""Rows that are kept decoded are never believed more than the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from zae_limiter.backends.sqlite.buckets import _write
from zae_limiter.backends.sqlite.codec import Item
from zae_limiter.backends.sqlite.rows import BucketRows
from zae_limiter.core.limit import MILLI
from zae_limiter.core.writes import Adjust
from zae_limiter.ports.repository_protocol import UsageQuery
from zae_limiter.runtime.blocking import run

from .sqlite_support import ADDRESS, T0_MS, create, opened, operation, take_one, taken


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    path = tmp_path / "limits.db"
    with opened(path) as store:
        create(store)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def charge(db: sqlite3.Connection, rows: BucketRows) -> None:
    _write(db, rows, ADDRESS, Adjust(operation(), T0_MS, {"rpd": MILLI}, 1))


def item(db: sqlite3.Connection, rows: BucketRows) -> Item:
    found = rows.read(db, ADDRESS)
    assert found is not None
    return found


def test_a_row_that_has_not_changed_is_not_decoded_again(db: sqlite3.Connection) -> None:
    rows = BucketRows()
    charge(db, rows)
    assert item(db, rows) is item(db, rows)
    assert item(db, rows) == item(db, BucketRows())


def test_a_row_that_another_wrote_is_decoded(db: sqlite3.Connection) -> None:
    ours, theirs = BucketRows(), BucketRows()
    for rows in (ours, theirs, ours, ours, theirs):
        charge(db, rows)
    assert item(db, ours).bucket.acquires == 5
    assert item(db, ours) == item(db, theirs) == item(db, BucketRows())


def test_a_row_that_went_back_is_decoded(db: sqlite3.Connection) -> None:
    rows = BucketRows()
    charge(db, rows)
    before = item(db, rows)
    for _ in range(3):
        db.execute("BEGIN IMMEDIATE")
        charge(db, rows)
        db.execute("ROLLBACK")
    assert item(db, rows) == before == item(db, BucketRows())
    charge(db, rows)
    assert item(db, rows).usage.events == 2
    assert item(db, rows).bucket.acquires == 2


def test_a_row_that_is_gone_is_gone(db: sqlite3.Connection) -> None:
    rows = BucketRows()
    charge(db, rows)
    db.execute("DELETE FROM buckets")
    assert rows.read(db, ADDRESS) is None


def test_stores_that_take_turns_see_each_other(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    with opened(path) as first, opened(path) as second:
        create(first)
        for store in (first, second, second, first, first, second):
            take_one(store)
        for store in (first, second):
            assert taken(store) == 6
            query = UsageQuery(entity_id=ADDRESS.entity_id, window_type="hourly")
            ((hour,), _) = run(store.usage.read("ns", query, 10, None))
            assert (hour.counters, hour.total_events) == ({"rpd": 6}, 6)
