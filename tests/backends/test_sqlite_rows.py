"""Rows: what cannot be read is named, and amounts beyond SQLite's integers survive."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.sqlite import (
    ADDRESS,
    EVENT,
    LIMITS,
    T0_MS,
    adjust,
    create,
    opened,
    operation,
    read,
    take_one,
    taken,
)
from zae_limiter.backends.sqlite import SqliteStore
from zae_limiter.core.bucket import BucketAddress, full_bucket
from zae_limiter.core.exceptions import StoredDataError, StoredDataWarning
from zae_limiter.core.hierarchy import ConfigSlot
from zae_limiter.core.limit import MILLI, Limit, LimitSet
from zae_limiter.core.models import Entity, LimiterConfig, UsageSnapshot
from zae_limiter.core.writes import Granted, Refill
from zae_limiter.ports.repository_protocol import NamespaceRecord, UsageQuery
from zae_limiter.runtime.blocking import run

HOUR_MS = 3_600_000
SLOT = ConfigSlot("user-1", "gpt-4")
QUERY = UsageQuery(entity_id="user-1")
OTHER_LIMITS = LimitSet.of([Limit.per_day("tpd", 10)])


def fill(store: SqliteStore) -> None:
    """At least one row in every table."""
    create(store)
    take_one(store)
    take_one(store, at_ms=T0_MS + HOUR_MS)
    run(store.configs.write("ns", SLOT, LimiterConfig((Limit.per_day("rpd", 5),)), EVENT))
    run(store.entities.create("ns", Entity("user-1", metadata={"plan": "pro"}), EVENT))
    run(store.namespaces.register(NamespaceRecord("default", "ns", "2023-11-14T22:13:20Z")))


def spoil(path: Path, table: str, column: str, value: object) -> None:
    db = sqlite3.connect(path)
    assert db.execute(f"UPDATE {table} SET {column} = ?", (value,)).rowcount
    db.commit()
    db.close()


READS: dict[str, Callable[[SqliteStore], Awaitable[object]]] = {
    "buckets": lambda store: store.buckets.read([ADDRESS]),
    "configs": lambda store: store.configs.read("ns", [SLOT]),
    "entities": lambda store: store.entities.read("ns", "user-1"),
    "namespaces": lambda store: store.namespaces.read_id("ns"),
}
KEYS = {
    "buckets": "buckets('ns', 'user-1', 'gpt-4', 0)",
    "configs": "configs('ns', 'user-1', 'gpt-4')",
    "entities": "entities('ns', 'user-1')",
    "namespaces": "namespaces('ns',)",
}
RATE = '["rpd",2,3,4]'
STORED_LIMIT = '{"name":"rpd","capacity":5,"refill_amount":5,"refill_period_seconds":86400}'


def shape(rate: str = RATE, shard: str = "0,1", dormant: str = "[]") -> str:
    return f'[[{rate}],"f",{shard},null,false,{dormant}]'


SPOILED = [
    ("buckets", "state", ""),
    ("buckets", "state", "one 0 1 5 6"),
    ("buckets", "state", b"1 0 1 5 6"),
    ("buckets", "state", "1"),
    ("buckets", "state", "1 0"),
    ("buckets", "state", "1 0 1 5"),
    ("buckets", "state", "1 0 1 5 6 7 8"),
    ("buckets", "state", "1 0 1.5 5 6"),
    ("buckets", "state", "1 0 1 5  6"),
    ("buckets", "state", f"1 0 -1{'0' * 400} 5 6"),
    ("buckets", "state", f"1 0 1 1{'0' * 400} 6"),
    ("buckets", "recent", b"op"),
    ("buckets", "shape", "not json"),
    ("buckets", "shape", b"[]"),
    ("buckets", "shape", "[" * 100_000),
    ("buckets", "shape", shape(rate="")),
    ("buckets", "shape", shape(rate='["rpd",2,3]')),
    ("buckets", "shape", shape(rate='["rpd",2,3,0]')),
    ("buckets", "shape", shape(rate='["rpd",2,0,4]')),
    ("buckets", "shape", shape(rate='["rpd","2",3,4]')),
    ("buckets", "shape", shape(rate="[1,2,3,4]")),
    ("buckets", "shape", shape(rate=f'["rpd",2,1{"0" * 400},4]')),
    ("buckets", "shape", shape(rate=f"{RATE},{RATE}")),
    ("buckets", "shape", shape(shard="1,1")),
    ("buckets", "shape", shape(shard="0,64")),
    ("buckets", "shape", shape(shard='"0",1')),
    ("buckets", "shape", shape(dormant="[1]")),
    ("buckets", "usage_hour_ms", "today"),
    ("buckets", "usage_hour_ms", 10**18),
    ("buckets", "usage_hour_ms", -(10**18)),
    ("buckets", "usage_counted", b"[0,{}]"),
    ("buckets", "look_at_s", "tomorrow"),
    ("configs", "limits", ""),
    ("configs", "limits", "[]"),
    ("configs", "limits", "{}"),
    ("configs", "limits", '""'),
    ("configs", "limits", f"[{STORED_LIMIT},{STORED_LIMIT}]"),
    ("configs", "limits", f'[{STORED_LIMIT[:-1]},"soft":true}}]'),
    ("configs", "limits", '[{"name":"rpd"}]'),
    ("configs", "limits", '[{"name":"a b","capacity":1,"refill_amount":1}]'),
    (
        "configs",
        "limits",
        '[{"name":"#","capacity":1,"refill_amount":1,"refill_period_seconds":1}]',
    ),
    ("configs", "on_unavailable", "maybe"),
    ("configs", "config_version", "one"),
    ("configs", "config_version", float("inf")),
    ("entities", "metadata", "[1]"),
    ("entities", "metadata", "null"),
    ("entities", "version", "one"),
    ("namespaces", "status", b"active"),
]


@pytest.mark.parametrize(("table", "column", "value"), SPOILED)
def test_a_row_that_cannot_be_read_is_named(
    tmp_path: Path, table: str, column: str, value: object
) -> None:
    path = tmp_path / "limits.db"
    with opened(path) as store:
        fill(store)
        run(READS[table](store))  # type: ignore[arg-type]
        spoil(path, table, column, value)
        with pytest.raises(StoredDataError) as raised:
            run(READS[table](store))  # type: ignore[arg-type]
        assert raised.value.record == KEYS[table]


@pytest.mark.parametrize("counted", ["[]", "[0]", '["0",{}]', '[0,{"rpd":"x"}]'])
def test_a_row_whose_usage_cannot_be_read_is_named(tmp_path: Path, counted: str) -> None:
    path = tmp_path / "limits.db"
    with opened(path) as store:
        create(store, expires_at_s=1)
        spoil(path, "buckets", "usage_counted", counted)
        with pytest.raises(StoredDataError) as raised:
            take_one(store, at_ms=T0_MS + HOUR_MS)
        assert raised.value.record == KEYS["buckets"]
        with pytest.warns(StoredDataWarning, match="user-1"):
            assert run(store.usage.read("ns", QUERY, 10, None)) == ([], None)
        create(store, BucketAddress("ns", "user-2", "gpt-4"))
        assert taken(store) == 0


@pytest.mark.parametrize("counts", ["[1]", "[null,{}]", f'[1,{{"rpd":1{"0" * 400}}}]'])
def test_an_hour_of_usage_that_cannot_be_read_is_left_out(tmp_path: Path, counts: str) -> None:
    path = tmp_path / "limits.db"
    with opened(path) as store:
        fill(store)
        spoil(path, "usage", "counts", counts)
        with pytest.warns(
            StoredDataWarning, match=r"usage\('ns', 'user-1', 'gpt-4', 1699999200000\)"
        ):
            run(store.usage.read("ns", QUERY, 10, None))


@pytest.mark.parametrize("hour", ["today", float("inf"), 10**18])
def test_usage_of_no_hour_is_left_out(tmp_path: Path, hour: object) -> None:
    path = tmp_path / "limits.db"
    with opened(path) as store:
        fill(store)
        spoil(path, "usage", "hour_ms", hour)
        with pytest.warns(StoredDataWarning, match="usage"):
            assert len(hours(store)) == 1


@pytest.mark.parametrize("version", ["one", float("inf"), 2**63 - 1, -1])
def test_a_damaged_config_version_is_mended_by_the_next_change(
    tmp_path: Path, version: object
) -> None:
    path, config = tmp_path / "limits.db", LimiterConfig((Limit.per_day("rpd", 7),))
    with opened(path) as store:
        fill(store)
        spoil(path, "configs", "config_version", version)
        assert run(store.configs.write("ns", SLOT, config, EVENT)) == 1
        assert run(store.configs.read("ns", [SLOT])).configs == {SLOT: config}


def test_lists_leave_out_rows_that_cannot_be_read(tmp_path: Path) -> None:
    path, record = tmp_path / "limits.db", NamespaceRecord("a", "ns-a", "2023-11-14T22:13:20Z")
    with opened(path) as store:
        run(store.entities.create("ns", Entity("child", parent_id="user-1"), EVENT))
        run(store.namespaces.register(record))
        spoil(path, "entities", "version", "one")
        spoil(path, "audit", "details", "7")
        spoil(path, "namespaces", "created_at", b"now")
        run(store.entities.create("ns", Entity("other", parent_id="user-1"), EVENT))
        with pytest.warns(StoredDataWarning, match=r"entities\('ns', 'child'\)"):
            children = run(store.entities.children("ns", "user-1"))
        with pytest.warns(StoredDataWarning, match=r"audit\('ns', 'user-1', '01HF'\)"):
            assert run(store.audit.read("ns", "user-1", 10, None)) == [EVENT]
        with pytest.warns(StoredDataWarning, match="ns-a"):
            assert run(store.namespaces.active()) == []
        assert [child.id for child in children] == ["other"]


def test_a_bucket_that_cannot_be_read_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    with opened(path) as store:
        fill(store)
        spoil(path, "buckets", "state", "no number")
        with pytest.raises(StoredDataError):
            take_one(store)
        assert rows(path, "SELECT state FROM buckets") == [("no number",)]


def test_a_bucket_that_cannot_be_read_is_left_out_of_lists_and_named(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    other, elsewhere = BucketAddress("ns", "user-2", "gpt-4"), BucketAddress("ns", "user-1", "o1")
    with opened(path) as store:
        create(store)
        spoil(path, "buckets", "state", "no number")
        create(store, other)
        create(store, elsewhere)
        with pytest.warns(StoredDataWarning, match=r"user-1.*ValueError"):
            assert list(run(store.buckets.of_resource("ns", "gpt-4"))) == [other]
        with pytest.warns(StoredDataWarning, match=r"user-1.*ValueError"):
            assert list(run(store.buckets.of_entity("ns", "user-1"))) == [elsewhere]


def test_an_entity_whose_rows_cannot_be_read_can_still_be_deleted(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    with opened(path) as store:
        fill(store)
        for table, column in [("buckets", "state"), ("configs", "limits"), ("usage", "counts")]:
            spoil(path, table, column, "not json")
        assert run(store.entities.delete("ns", "user-1", EVENT)) == 5
        create(store)
        assert taken(store) == 0


def test_an_expired_bucket_that_cannot_be_read_is_nobody_elses_trouble(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    other = BucketAddress("ns", "user-2", "gpt-4")
    with opened(path) as store:
        create(store, expires_at_s=1)
        spoil(path, "buckets", "state", "no number")
        create(store, other)
        assert taken(store, other) == 0
        with pytest.raises(StoredDataError, match="user-1"):
            read(store)


def rows(path: Path, select: str) -> list[tuple[Any, ...]]:
    db = sqlite3.connect(path)
    found = db.execute(select).fetchall()
    db.close()
    return found


def test_amounts_beyond_the_integers_of_sqlite_survive(tmp_path: Path) -> None:
    huge = 10**21
    with opened(tmp_path / "limits.db") as store:
        create(store, expires_at_s=huge)
        adjust(store, huge)
        adjust(store, huge)
        bucket = read(store)
        assert bucket is not None
        assert bucket.expires_at_s == huge
        assert bucket.cells["rpd"].consumed_milli == 2 * huge * MILLI
        adjust(store, 1, at_ms=T0_MS + HOUR_MS)
        assert [hour.counters for hour in hours(store)] == [{"rpd": 1}, {"rpd": 2 * huge}]


def test_the_usage_of_a_bucket_survives_a_limit_that_goes_and_comes_back(tmp_path: Path) -> None:
    with opened(tmp_path / "limits.db") as store:
        create(store)
        take_one(store)
        for limits in (OTHER_LIMITS, LIMITS):
            seen = read(store)
            assert seen is not None
            after = full_bucket(limits, T0_MS)._replace(recent=seen.recent, acquires=seen.acquires)
            write = Refill(operation(), T0_MS, seen, after)
            assert isinstance(run(store.buckets.write(ADDRESS, write)), Granted)
        adjust(store, 5)
        (hour,) = hours(store)
        assert (hour.counters, hour.total_events) == ({"rpd": 6}, 1)


def test_a_write_with_an_earlier_time_counts_for_its_own_hour(tmp_path: Path) -> None:
    with opened(tmp_path / "limits.db") as store:
        create(store)
        for hour in (1, 0, 1, 0, 2):
            take_one(store, at_ms=T0_MS + hour * HOUR_MS)
        used = [(hour.counters, hour.total_events) for hour in hours(store)]
        assert used == [({"rpd": 1}, 1), ({"rpd": 2}, 2), ({"rpd": 2}, 2)]


def test_stores_that_take_turns_see_each_other(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    with opened(path) as first, opened(path) as second:
        create(first)
        for store in (first, second, second, first, first, second):
            take_one(store)
        for store in (first, second):
            assert taken(store) == 6
            (hour,) = hours(store)
            assert (hour.counters, hour.total_events) == ({"rpd": 6}, 6)


def hours(store: SqliteStore) -> list[UsageSnapshot]:
    query = UsageQuery(ADDRESS.entity_id, window_type="hourly")
    found, _ = run(store.usage.read("ns", query, 9, None))
    return found


def test_metadata_and_details_survive_as_they_are(tmp_path: Path) -> None:
    entity = Entity("user-1", "Zoë 🐝", "org", True, {"ключ": "значение\n\"'"}, "2024-01-01", 3)
    event = EVENT.with_details(limits=[{"name": "rpd", "capacity": 1}], note="ü", none=None)
    with opened(tmp_path / "limits.db") as store:
        assert run(store.entities.create("ns", entity, event))
        found = run(store.entities.read("ns", "user-1"))
        assert found is not None
        assert (found, found.version) == (entity, 3)
        assert run(store.audit.read("ns", "user-1", 1, None)) == [event]
