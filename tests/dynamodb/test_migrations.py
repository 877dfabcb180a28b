"""A table of an older schema is migrated while clients work: nothing is lost, nothing minted."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import chain

import pytest
from click.testing import CliRunner

from tests.support.old_table import OldTable, old_keys, takes
from tests.support.old_tables import SHAPES, Record, Shape, old_bucket, old_records
from tests.support.servers.chaos import ChaosProxy, DropAnswer, Pass, Reset, service_error
from tests.support.servers.processes import Server
from zae_limiter import (
    IncompatibleSchemaError,
    Limit,
    LimiterConfig,
    SyncRateLimiter,
    SyncRepository,
    ValidationError,
    VersionMismatchError,
)
from zae_limiter.backends.dynamodb.schema import key
from zae_limiter.cli import cli
from zae_limiter.migrations import (
    Migration,
    apply_migrations,
    get_migrations,
    get_migrations_between,
    register_migration,
)
from zae_limiter.runtime.blocking import run

RPM = Limit.per_day("rpm", 10)
# `make soak` migrates many more.
OLD_BUCKETS = int(os.environ.get("ZAEL_OLD_BUCKETS", "40"))


@pytest.fixture
def table(dynamodb: Server) -> Iterator[OldTable]:
    made = OldTable(dynamodb)
    yield made
    made.close()


def test_a_whole_table_is_migrated(table: OldTable) -> None:
    table.forget_namespaces()
    table.put(*old_records(table.now_ms))
    left = {"rpm": (4, 20), "tpm": (100, 9000)}
    table.put(*old_bucket("nested", "key-1", "gpt-4", left, table.now_ms))
    for opening in (SyncRepository.open, SyncRepository.connect):
        with pytest.raises(IncompatibleSchemaError, match=r"schema 0\.5\.0"):
            opening(**table.place)
    before = table.items()
    assert len(before) == len([*old_records(0)]) + len(left), "a refused client wrote something"
    planned = table.migrate("--dry-run")
    assert planned.exit_code == 0, planned.output
    assert table.items() == before
    done = table.migrate(typed="y\n")
    assert done.exit_code == 0, done.output
    assert "Are all clients of older versions stopped?" in done.stderr
    assert "aws dynamodb create-backup" in done.stderr
    assert done.stdout.splitlines()[-1] == "The table has schema 0.10.0"
    counted = {line.removeprefix("Moved ") for line in done.stdout.splitlines()[:-1]}
    would = [line for line in planned.stdout.splitlines() if line.startswith("Would move ")]
    assert {line.removeprefix("Would move ") for line in would} == counted
    assert "2 entities" in counted
    assert "1 buckets" in counted
    assert old_keys(table) == []
    assert table.record()["client_min_version"] == "0.0.0"
    check_migrated(table)
    again = table.migrate("--yes")
    assert again.stdout == "Nothing to do: the table has schema 0.10.0\n"


@pytest.mark.parametrize("passed", range(2, 56, 4))
def test_an_interrupted_migration_goes_on_when_it_is_run_again(
    table: OldTable, passed: int, proxy: ChaosProxy
) -> None:
    """After so many requests, answers are lost: what was asked for may have been done."""
    table.forget_namespaces()
    table.put(*old_records(table.now_ms))
    left = {"rpm": (4, 20), "tpm": (100, 9000)}
    table.put(*old_bucket("hybrid", "key-1", "gpt-4", left, table.now_ms))
    proxy.use([*[Pass()] * passed, *[DropAnswer()] * 3, *[Reset()] * 60])
    assert table.migrate("--yes", url=proxy.url).exit_code != 0
    done = table.migrate("--yes")
    assert done.exit_code == 0, done.output
    assert old_keys(table) == []
    check_migrated(table)


def check_migrated(table: OldTable) -> None:
    """Everything that `old_records` says is found by today's calls."""
    daily = Limit.per_day
    with table.connect() as repository:
        limiter = SyncRateLimiter(repository)
        acme, child = limiter.get_entity("acme"), limiter.get_children("acme")[0]
        assert acme is not None
        assert (acme.name, acme.metadata) == ("Acme", {"tier": "gold"})
        assert (child.id, child.cascade, child.created_at) == (
            "key-1",
            True,
            "2026-01-02T00:00:00Z",
        )
        assert limiter.get_limits("key-1", "gpt-4") == [Limit("rpm", 20, 10, 86_400)]
        assert limiter.get_limits("key-1") == [daily("rpm", 7)]
        assert limiter.get_resource_defaults("gpt-4") == [
            daily("rpm", 100),
            Limit("tpm", 9000, 5000, 86_400),
        ]
        assert limiter.get_resource_defaults("whisper") == [daily("rpm", 40)]
        assert limiter.get_resource_defaults("llama/70b") == [daily("rpm", 60)]
        assert limiter.list_resources_with_defaults() == ["gpt-4", "llama/70b", "whisper"]
        assert limiter.list_resources_with_entity_configs() == ["_default_", "gpt-4"]
        assert limiter.list_entities_with_custom_limits("gpt-4") == (["key-1"], None)
        system = limiter.get_config("system")
        assert system == LimiterConfig((daily("rpm", 1000),), "allow", None, False)
        usage, _ = limiter.get_usage_snapshots("key-1")
        assert [(u.window_type, u.counters, u.total_events) for u in usage] == [
            ("daily", {"tpm": 500}, 10)
        ]
        events = limiter.get_audit_events("key-1")
        assert (events[-1].event_id[:2], events[-1].details) == ("01", {"n": 1})
        assert {event.principal for event in events[:-1]} == {"migration"}
        assert takes(limiter, rpm=4)
        assert not takes(limiter, rpm=1)


def test_an_old_table_without_a_version_record_is_told_from_a_new_one(table: OldTable) -> None:
    table.forget_namespaces()
    table.put(*(r for r in old_records(table.now_ms) if r["SK"] != "#VERSION"))
    place = ("--name", table.place["stack"], "--region", table.place["region"])
    args = ["check", *place, "--endpoint-url", table.place["endpoint_url"]]
    found = CliRunner().invoke(cli, args, env={"ZAEL_URL": None})
    assert found.exit_code == 1
    assert found.stdout.startswith("Result: INCOMPATIBLE\nSchema 0.0.0 is older than 0.10.0")
    with pytest.raises(IncompatibleSchemaError):
        table.connect()
    declined = table.migrate(typed="n\n")
    assert declined.exit_code == 1
    assert old_keys(table)
    done = table.migrate("--yes", "--json")
    assert json.loads(done.stdout)["applied"] == ["0.9.0", "0.10.0"]
    assert json.loads(done.stdout)["moved"]["entities"] == 2
    assert old_keys(table) == []


def test_an_old_record_is_found_wherever_it_is_among_records_of_today(table: OldTable) -> None:
    """Pages of a server hold a megabyte; the old record may be on any."""
    run(table.store.table.delete(key("_/SYSTEM#", "#VERSION")))
    place, blob = f"{table.namespace_id}/ENTITY#key-", "x" * 100_000
    table.put(*({"PK": f"{place}{n}", "SK": "#META", "blob": blob} for n in range(25)))
    table.connect().close()
    table.put(*old_bucket("flat", "key-1", "gpt-4", {"rpm": (0, 10)}, table.now_ms))
    with pytest.raises(IncompatibleSchemaError, match="zae-limiter migrate"):
        table.connect()


def test_a_client_that_may_not_look_for_old_records_is_not_let_in(
    table: OldTable, proxy: ChaosProxy
) -> None:
    table.forget_namespaces()
    # Two reads find no version record; the third call is the scan.
    proxy.use([Pass(), Pass(), *[service_error(400, "AccessDeniedException")] * 3])
    with pytest.raises(IncompatibleSchemaError, match="zae-limiter migrate"):
        SyncRepository.connect(**{**table.place, "endpoint_url": proxy.url})


@pytest.mark.parametrize("shape", ["flat", "prefixed"])
def test_a_resource_s_capacity_counts_buckets_that_were_not_moved(
    table: OldTable, shape: Shape
) -> None:
    ns = table.namespace_id
    for entity_id in ("key-1", "key-2"):
        table.put(*old_bucket(shape, entity_id, "gpt-4", {"rpm": (4, 10)}, table.now_ms, ns))
    table.be_of("0.9.0")
    with table.connect() as repository:
        limiter = SyncRateLimiter(repository)
        limiter.set_system_defaults([RPM])
        assert takes(limiter, rpm=1)
        found = limiter.get_resource_capacity("gpt-4", "rpm")
    assert (found.total_capacity, found.total_available) == (20, 7)


def test_usage_that_was_counted_meanwhile_is_added_to_the_old(table: OldTable) -> None:
    table.put(*(r for r in old_records(table.now_ms) if "#USAGE#" in r["SK"]))
    table.put(
        {
            "PK": f"{table.namespace_id}/ENTITY#key-1",
            "SK": "#USAGE#gpt-4#2026-01-03",
            "entity_id": "key-1",
            "resource": "gpt-4",
            "window": "daily",
            "window_start": "2026-01-03T00:00:00Z",
            "tpm": 7,
            "rpm": 1,
            "total_events": 1,
        }
    )
    table.be_of("0.9.0")
    assert table.migrate("--yes").exit_code == 0
    with table.connect() as repository:
        found, _ = repository.get_usage_snapshots("key-1")
    assert [(u.counters, u.total_events) for u in found] == [({"tpm": 507, "rpm": 1}, 11)]


@pytest.mark.parametrize("page_items", [1, 3, 4])
def test_limits_of_a_bucket_that_lie_on_two_pages_are_moved_together(
    table: OldTable, page_items: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zae_limiter.backends.dynamodb.older.moving._PAGE_ITEMS", page_items)
    left = {"rpm": (5, 10), "tpm": (30, 100), "x": (1, 7)}
    entities = [f"key-{number}" for number in range(6)]
    for entity_id in entities:
        table.put(*old_bucket("flat", entity_id, "gpt-4", left, table.now_ms))
    table.be_of("0.9.0")
    assert table.migrate("--yes").exit_code == 0
    with table.connect() as repository:
        for entity_id in entities:
            found = repository.get_buckets(entity_id, "gpt-4")
            assert {b.limit_name: b.tokens for b in found} == {"rpm": 5, "tpm": 30, "x": 1}
    assert old_keys(table) == []


def test_clients_and_the_migration_move_each_bucket_once(table: OldTable) -> None:
    """Of each bucket 5 of 10 are left, and nothing refills while the test runs."""
    entities = [f"key-{number}" for number in range(OLD_BUCKETS)]
    ns, left = table.namespace_id, {"rpm": (5, 10)}
    table.turn_stream_off()
    shapes = [SHAPES[number % len(SHAPES)] for number in range(OLD_BUCKETS)]
    made = zip(entities, shapes, strict=True)
    old = (old_bucket(shape, e, "gpt-4", left, table.now_ms, ns) for e, shape in made)
    table.put(*chain.from_iterable(old))
    table.be_of("0.9.0")
    # A step that is no multiple of the number of shapes, so that buckets of all shapes are used.
    used = entities[:: max(1, OLD_BUCKETS // 41)]
    admitted: Counter[str] = Counter()
    with table.connect() as repository:
        SyncRateLimiter(repository).set_system_defaults([RPM])

    def work() -> None:
        with table.connect() as own:
            limiter = SyncRateLimiter(own)
            for _ in range(3):
                admitted.update(e for e in used if takes(limiter, e, rpm=1))

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    done = table.migrate("--yes")
    for worker in workers:
        worker.join()
    assert done.exit_code == 0, done.output
    assert admitted == dict.fromkeys(used, 5)
    found = table.items()
    for entity_id in entities:
        tokens_milli = found[f"{ns}/BUCKET#{entity_id}#gpt-4#0", "#STATE"]["b_rpm_tk"]
        assert tokens_milli // 1000 == 5 - admitted[entity_id], entity_id
    assert old_keys(table) == []


def test_a_client_of_an_older_version_is_kept_out_meanwhile(
    table: OldTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.forget_namespaces()
    table.put(*old_records(table.now_ms))
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        repository = SyncRepository(
            table.place["stack"], table.place["region"], table.place["endpoint_url"]
        )
    with repository:
        assert run(apply_migrations(repository, "0.5.0", "0.9.0")) == ["0.9.0"]
    monkeypatch.setattr("zae_limiter.flows.admin.versions.__version__", "0.17.0")
    with pytest.raises(VersionMismatchError, match="upgrade the client"):
        table.connect()


def test_a_record_that_cannot_be_read_stays_and_keeps_the_table_closed(table: OldTable) -> None:
    table.forget_namespaces()
    table.put(*old_records(table.now_ms))
    table.put({"PK": "ENTITY#key-2", "SK": "#LIMIT#gpt-4#rpm", "capacity": "many"})
    failed = table.migrate("--yes")
    assert failed.exit_code == 1
    assert "1 records, which stay as they are: Cannot read ENTITY#key-2" in failed.stderr
    with pytest.raises(IncompatibleSchemaError):
        table.connect()
    run(table.store.table.delete(key("ENTITY#key-2", "#LIMIT#gpt-4#rpm")))
    assert table.migrate("--yes").exit_code == 0
    with table.connect() as repository:
        assert repository.get_limits("key-1") == [Limit.per_day("rpm", 7)]


def test_damaged_records_are_all_named_and_keep_no_other_from_being_moved(
    table: OldTable,
) -> None:
    table.forget_namespaces()
    table.put(*old_records(table.now_ms))
    good: Record = {"capacity": 5, "refill_amount": 5, "refill_period_seconds": 60}
    damaged: list[Record] = [
        {"PK": "ENTITY#key-2", "SK": "#META", "entity_id": "key-2", "created_at": 0},
        {"PK": "ENTITY#key-2", "SK": "#LIMIT#gpt-4#rpm", "capacity": "many"},
        {"PK": "ENTITY#key-2", "SK": "#LIMIT#gpt-4#tpm", "capacity": "more"},
        {"PK": "RESOURCE#claude", "SK": "#LIMIT#claude#rpm", "capacity": "few"},
        {"PK": "ENTITY#key-2", "SK": "#BUCKET#gpt-4#rpm", "tokens_milli": "none"},
    ]
    waiting: list[Record] = [
        {"PK": "ENTITY#key-2", "SK": "#LIMIT#gpt-4#ipm", **good},
        {"PK": "SYSTEM#", "SK": "#LIMIT#claude#rpm", **good},
    ]
    table.put(*damaged, *waiting, {"PK": "ENTITY#key-2", "SK": "#LIMIT#_default_#rpm", **good})
    table.put(*old_bucket("nested", "key-2", "claude", {"rpm": (4, 20)}, table.now_ms))
    for option in ("--dry-run", "--yes"):
        failed = table.migrate(option)
        assert failed.exit_code == 1
        assert "5 records, which stay as they are" in failed.stderr
        assert all(f"{record['PK']} {record['SK']}" in failed.stderr for record in damaged)
    stay = {(record["PK"], record["SK"]) for record in (*damaged, *waiting)}
    assert set(old_keys(table)) - {("SYSTEM#", "#VERSION")} == stay
    with pytest.raises(IncompatibleSchemaError):
        table.connect()
    for pk, sk in stay - {(waiting[1]["PK"], waiting[1]["SK"])}:
        run(table.store.table.delete(key(pk, sk)))
    table.put({"PK": "RESOURCE#claude", "SK": "#LIMIT#claude#rpm", **good, "capacity": 9})
    assert table.migrate("--yes").exit_code == 0
    with table.connect() as repository:
        assert [each.capacity for each in repository.get_resource_defaults("claude")] == [9]
        assert [each.name for each in repository.get_limits("key-2")] == ["rpm"]


def test_migrations_are_registered_in_the_order_of_their_versions() -> None:
    versions = [migration.version for migration in get_migrations()]
    assert versions == ["0.9.0", "0.10.0"]
    assert [m.version for m in get_migrations_between("0.9.0", "0.10.0")] == ["0.10.0"]
    assert get_migrations_between("0.10.0", "0.11.0") == []
    with pytest.raises(ValueError, match="already"):
        register_migration(Migration("0.9.0", "again", get_migrations()[0].migrate))


def test_a_store_without_a_table_needs_no_migration() -> None:
    repository = SyncRepository.open(url="memory://")
    with repository, pytest.raises(ValidationError, match="needs no migration"):
        run(apply_migrations(repository, "0.5.0"))
