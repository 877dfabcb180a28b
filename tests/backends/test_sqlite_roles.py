"""What is particular to how the SQLite store keeps things."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

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
from zae_limiter.backends.sqlite import SqliteStore, namespaces
from zae_limiter.core.bucket import BucketAddress, full_bucket
from zae_limiter.core.hierarchy import ConfigSlot
from zae_limiter.core.limit import MILLI, Limit
from zae_limiter.core.models import Entity, LimiterConfig, UsageSnapshot
from zae_limiter.core.writes import Adjust, Create, Granted, Refill, Refused
from zae_limiter.ports.repository_protocol import NamespaceRecord, UsageQuery
from zae_limiter.runtime.blocking import run

HOUR_MS = 3_600_000
PAST_S = T0_MS // 1000
NAMESPACE = NamespaceRecord("default", "ns", "2023-11-14T22:13:20Z")


def hourly(store: SqliteStore, entity_id: str = "user-1") -> list[UsageSnapshot]:
    query = UsageQuery(entity_id, window_type="hourly")
    return run(store.usage.read("ns", query, 100, None))[0]


def user(number: int) -> BucketAddress:
    return BucketAddress("ns", f"user-{number}", "gpt-4")


def stored(store: SqliteStore) -> int:
    return len(run(store.buckets.of_resource("ns", "gpt-4")))


def test_an_expired_bucket_stays_until_another_is_made(tmp_path: Path) -> None:
    with opened(tmp_path / "limits.db") as store:
        create(store, expires_at_s=PAST_S)
        assert isinstance(create(store), Refused)
        take_one(store)
        assert taken(store) == 1
        create(store, user(2))
        assert read(store) is None
        assert read(store, user(2)) is not None


def test_a_bucket_that_has_not_expired_stays(tmp_path: Path) -> None:
    with opened(tmp_path / "limits.db") as store:
        create(store, expires_at_s=PAST_S + 1)
        create(store, user(2))
        assert read(store) is not None


def test_sweeping_is_bounded_and_catches_up(tmp_path: Path) -> None:
    with opened(tmp_path / "limits.db") as store:
        run(store.buckets.write_all([expired(number) for number in range(40)]))
        left = []
        for number in range(100, 104):
            create(store, user(number))
            left.append(stored(store))
        assert left == [25, 10, 3, 4]


def expired(number: int) -> tuple[BucketAddress, Create]:
    """A bucket made a second before all others."""
    bucket = full_bucket(LIMITS, T0_MS)._replace(expires_at_s=PAST_S)
    return user(number), Create(operation(), T0_MS - 1000, bucket)


def test_a_bucket_that_lives_longer_than_expected_stays(tmp_path: Path) -> None:
    with opened(tmp_path / "limits.db") as store:
        create(store, expires_at_s=PAST_S)
        for expires_at_s in (PAST_S + 1, PAST_S + 2, None):
            renew(store, expires_at_s)
            create(store, user(expires_at_s or 0))
            assert read(store) is not None
        renew(store, PAST_S)
        create(store, user(2))
        assert read(store) is None


def renew(store: SqliteStore, expires_at_s: int | None) -> None:
    before = read(store)
    assert before is not None
    write = Refill(operation(), T0_MS, before, before._replace(expires_at_s=expires_at_s))
    assert isinstance(run(store.buckets.write(ADDRESS, write)), Granted)


def test_buckets_in_use_do_not_hide_those_that_have_expired(tmp_path: Path) -> None:
    with opened(tmp_path / "limits.db") as store:
        run(store.buckets.write_all([expired(number) for number in range(40)]))
        for number in range(0, 40, 2):
            address = user(number)
            before = read(store, address)
            assert before is not None
            write = Refill(operation(), T0_MS, before, before._replace(expires_at_s=PAST_S + 9))
            run(store.buckets.write(address, write))
        for number in range(100, 103):
            create(store, user(number))
        left = run(store.buckets.of_resource("ns", "gpt-4"))
        assert len(left) == 20 + 3


def test_a_longer_life_is_not_written_to_the_index_each_time(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    with opened(path) as store:
        create(store, expires_at_s=PAST_S + 1)
        renew(store, PAST_S + 100)
        assert look_at_s(path) == PAST_S + 1
        renew(store, PAST_S)
        assert look_at_s(path) == PAST_S
        renew(store, None)
        assert look_at_s(path) is None
        renew(store, PAST_S + 3)
        assert look_at_s(path) == PAST_S + 3


def look_at_s(path: Path) -> int | None:
    with closing(sqlite3.connect(path)) as db:
        (found,) = db.execute("SELECT look_at_s FROM buckets").fetchone()
    assert found is None or isinstance(found, int)
    return found


def test_the_usage_of_an_expired_bucket_is_kept(tmp_path: Path) -> None:
    with opened(tmp_path / "limits.db") as store:
        create(store, expires_at_s=PAST_S)
        take_one(store)
        before = hourly(store)
        create(store, user(2))
        assert hourly(store) == before
        assert [(hour.counters, hour.total_events) for hour in before] == [({"rpd": 1}, 1)]


def test_usage_of_an_hour_in_the_table_and_in_the_row_is_one(tmp_path: Path) -> None:
    with opened(tmp_path / "limits.db") as store:
        create(store)
        take_one(store)
        take_one(store, at_ms=T0_MS + HOUR_MS)
        take_one(store)
        take_one(store, at_ms=T0_MS + HOUR_MS)
        assert [hour.counters for hour in hourly(store)] == [{"rpd": 2}, {"rpd": 2}]


def test_a_bucket_swept_by_a_write_beside_its_own_loses_no_usage(tmp_path: Path) -> None:
    with opened(tmp_path / "limits.db") as store:
        create(store, expires_at_s=PAST_S)
        create_other = Create(operation(), T0_MS, full_bucket(LIMITS, T0_MS))
        charge = Adjust(operation(), T0_MS, {"rpd": MILLI}, 1)
        outcomes = run(store.buckets.write_all([(user(2), create_other), (ADDRESS, charge)]))
        assert [type(outcome) for outcome in outcomes] == [Granted, Granted]
        assert [hour.total_events for hour in hourly(store)] == [1]


def test_deleting_an_entity_counts_the_hour_that_only_its_bucket_knows(tmp_path: Path) -> None:
    with opened(tmp_path / "limits.db") as store:
        create(store)
        for shard in (1, 2):
            create(store, ADDRESS._replace(shard=shard))
        take_one(store, at_ms=T0_MS + HOUR_MS)
        # Three buckets, and two hours: one in the table and in rows, one in a row.
        assert run(store.entities.delete("ns", "user-1", EVENT)) == 5
        (event,) = run(store.audit.read("ns", "user-1", 10, None))
        assert event.details == {"records_deleted": 5}
        assert hourly(store) == []


def test_a_write_that_is_refused_writes_nothing(tmp_path: Path) -> None:
    journal = tmp_path / "limits.db-wal"
    with opened(tmp_path / "limits.db") as store:
        create(store)
        length = journal.stat().st_size
        assert isinstance(create(store), Refused)
        assert journal.stat().st_size == length
        adjust(store, 1)
        assert journal.stat().st_size > length


def fill_namespace(store: SqliteStore, namespace_id: str, entities: int) -> None:
    config = LimiterConfig((Limit.per_day("rpd", 1),))
    for number in range(entities):
        entity_id = f"user-{number}"
        create(store, BucketAddress(namespace_id, entity_id, "gpt-4"))
        run(store.entities.create(namespace_id, Entity(entity_id), EVENT))
        run(store.configs.write(namespace_id, ConfigSlot(entity_id, "gpt-4"), config, EVENT))


def rows_left(path: Path, namespace_id: str) -> int:
    db = sqlite3.connect(path)
    tables = ("buckets", "configs", "entities", "audit", "usage", "namespaces")
    counts = [
        db.execute(f"SELECT count(*) FROM {table} WHERE namespace_id = ?", (namespace_id,))
        for table in tables
    ]
    total = sum(int(count.fetchone()[0]) for count in counts)
    db.close()
    return total


def test_a_purge_goes_in_steps_and_spares_other_namespaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "_PURGED_PER_TRANSACTION", 3)
    path = tmp_path / "limits.db"
    with opened(path) as store:
        run(store.namespaces.register(NAMESPACE))
        run(store.namespaces.delete("default", "2024-01-01T00:00:00Z"))
        fill_namespace(store, "ns", 10)
        fill_namespace(store, "other", 10)
        kept = rows_left(path, "other")
        # Ten each of buckets, hours, configurations and entities, and the twenty events.
        assert run(store.namespaces.purge("ns")) == 60
        assert rows_left(path, "ns") == 0
        assert rows_left(path, "other") == kept
        assert run(store.namespaces.purge("ns")) == 0


def test_a_purge_that_was_interrupted_can_be_found_and_finished(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    with opened(path) as store:
        run(store.namespaces.register(NAMESPACE))
        run(store.namespaces.delete("default", "2024-01-01T00:00:00Z"))
        fill_namespace(store, "ns", 3)
        spoiler = sqlite3.connect(path)
        spoiler.execute(
            "CREATE TRIGGER stop BEFORE DELETE ON entities BEGIN SELECT raise(ABORT, 'stop'); END"
        )
        with pytest.raises(sqlite3.IntegrityError, match="stop"):
            run(store.namespaces.purge("ns"))
        spoiler.execute("DROP TRIGGER stop")
        spoiler.close()
        (left,) = run(store.namespaces.orphans())
        assert (left.namespace_id, left.status) == ("ns", "purging")
        assert not run(store.namespaces.recover("ns"))
        assert run(store.namespaces.purge("ns")) > 0
        assert rows_left(path, "ns") == 0
        assert run(store.namespaces.orphans()) == []


def plan_of(path: Path, select: str, values: int) -> str:
    db = sqlite3.connect(path)
    steps = db.execute(f"EXPLAIN QUERY PLAN {select}", ("",) * values).fetchall()
    db.close()
    return "\n".join(step[3] for step in steps)


def test_every_query_finds_its_rows_by_an_index(tmp_path: Path) -> None:
    from zae_limiter.backends.sqlite import audit, buckets, configs, entities, rows, usage

    path = tmp_path / "limits.db"
    with opened(path):
        queries = [
            (rows._SELECT, 4),
            (buckets._SELECT_ENTITY, 2),
            (buckets._SELECT_RESOURCE, 4),
            (buckets._SELECT_ENTITIES_AFTER, 3),
            (buckets._SELECT_DUE, 2),
            (usage._SELECT_HOUR, 4),
            (f"{usage._SELECT_CURRENT} WHERE namespace_id = ? AND resource = ?", 2),
            (f"{usage._SELECT_FLUSHED} WHERE namespace_id = ? AND resource = ?", 2),
            (configs._select(2, with_entity=True), 8),
            (configs._SELECT_ENTITIES, 4),
            (entities._SELECT_CHILDREN, 2),
            (audit._SELECT, 4),
            (namespaces._SELECT_ACTIVE, 1),
            (namespaces._SELECT_ID, 1),
        ]
        for select, values in queries:
            plan = plan_of(path, select, values)
            assert "SEARCH" in plan, plan
            assert "SCAN" not in plan, plan
