"""Which files the SQLite store opens, and what it leaves untouched."""

from __future__ import annotations

import os
import random
import sqlite3
import struct
import time
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import pytest

from tests.support.sqlite import (
    Gate,
    create,
    fork,
    join,
    kill,
    open_store,
    opened,
    read,
    take_one,
    taken,
)
from zae_limiter.backends.sqlite import SqliteStore
from zae_limiter.backends.sqlite.file import APPLICATION_ID, FILE_VERSION
from zae_limiter.core.exceptions import (
    IncompatibleSchemaError,
    InfrastructureNotFoundError,
    StorageUnavailable,
    StoredDataError,
    ValidationError,
)
from zae_limiter.core.receipts import ReceiptKey
from zae_limiter.runtime.blocking import BlockingIo, run


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def foreign_database(path: Path, journal_mode: str = "DELETE", version: int = 0) -> None:
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA journal_mode = {journal_mode}")
    db.execute(f"PRAGMA user_version = {version}")
    db.execute("CREATE TABLE buckets (name TEXT)")
    db.commit()
    db.close()


def assert_refused(path: Path, error: type[Exception], reason: str) -> None:
    """Refused, and nothing in the directory is any different."""
    before = contents(path.parent)
    for creating in (False, True):
        with pytest.raises(error, match=reason):
            open_store(path, create=creating)
    assert contents(path.parent) == before


def test_a_new_store_is_made_and_opens_again(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    with opened(path) as store:
        create(store)
        run(store.ping())
    with opened(path, create=False) as store:
        assert read(store) is not None
    assert os.listdir(tmp_path) == ["limits.db"]


def test_an_empty_file_counts_as_new(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    path.touch()
    assert_missing(path)
    with opened(path) as store:
        create(store)


def assert_missing(path: Path) -> None:
    with pytest.raises(InfrastructureNotFoundError) as raised:
        open_store(path, create=False)
    assert raised.value.stack_name == str(path)


def test_a_missing_file_is_not_made_unasked(tmp_path: Path) -> None:
    assert_missing(tmp_path / "limits.db")
    assert os.listdir(tmp_path) == []


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "limits.db"
    with pytest.raises(InfrastructureNotFoundError, match=f"no directory {path.parent}"):
        open_store(path)


@pytest.mark.parametrize(
    ("path", "reason"),
    [(":memory:", "memory://"), ("", "must name a file"), ("a\0b", "must name a file")],
)
def test_a_path_that_names_no_file_is_refused(path: str, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason) as raised:
        run(SqliteStore.open(path, BlockingIo(), create=True))
    assert raised.value.field == "url"


def test_a_directory_and_a_device_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(StoredDataError, match="is not a file"):
            open_store(path)


@pytest.mark.parametrize("name", ["with space.db", "100%.db", "what?mode=memory#x.db", "ü.db"])
def test_any_file_name_will_do(tmp_path: Path, name: str) -> None:
    with opened(tmp_path / name) as store:
        create(store)
    assert os.listdir(tmp_path) == [name]


def test_a_relative_path_stays_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with opened(Path("limits.db")) as store:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        create(store)
    assert os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.parametrize("text", [b"x", b"hello world\n" * 100, bytes(5000)])
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(text)
    assert_refused(path, StoredDataError, "is not a zae-limiter store")


@pytest.mark.parametrize("journal_mode", ["DELETE", "WAL"])
def test_a_foreign_database_is_left_alone(tmp_path: Path, journal_mode: str) -> None:
    path = tmp_path / "app.db"
    foreign_database(path, journal_mode, version=FILE_VERSION)
    assert_refused(path, StoredDataError, "is not a zae-limiter store")


def test_a_foreign_database_that_crashed_is_left_to_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "app.db"

    def crash() -> None:
        foreign_database(path, "WAL")
        db = sqlite3.connect(path)
        db.execute("INSERT INTO buckets VALUES ('unsaved')")
        db.commit()
        os._exit(0)

    join(fork(crash))
    assert (tmp_path / "app.db-wal").stat().st_size > 0
    assert_refused(path, StoredDataError, "is not a zae-limiter store")


def test_looking_at_a_foreign_database_keeps_the_locks_on_it(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    foreign_database(path)
    owner = sqlite3.connect(path, isolation_level=None)
    owner.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoredDataError):
        open_store(path)

    def lock_too() -> None:
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            sqlite3.connect(path, timeout=0).execute("BEGIN EXCLUSIVE")

    assert join(fork(lock_too)) == [0]
    owner.close()


def test_a_newer_schema_asks_for_an_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    run(open_store(path).close())
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {FILE_VERSION + 1}")
    db.close()
    assert_refused(path, IncompatibleSchemaError, "upgrade zae-limiter")


@pytest.mark.parametrize("version", range(FILE_VERSION))
def test_an_older_schema_is_refused(tmp_path: Path, version: int) -> None:
    path = tmp_path / "limits.db"
    run(open_store(path).close())
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {version}")
    db.close()
    assert_refused(path, StoredDataError, f"has schema version {version}.*use another file")


@pytest.mark.parametrize("length", [1, 99, 100, 512, 4096, 5000, -1])
def test_a_file_that_was_cut_short_is_left_alone(tmp_path: Path, length: int) -> None:
    path = tmp_path / "limits.db"
    with opened(path) as store:
        create(store)
    path.write_bytes(path.read_bytes()[:length])
    assert_refused(path, StoredDataError, "is cut short|is damaged|is not a zae-limiter")


def test_damaged_pages_are_reported_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    with opened(path) as store:
        create(store)
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))
    before = contents(tmp_path)
    with opened(path, create=False) as store, pytest.raises(StoredDataError, match=r"limits\.db"):
        take_one(store)
    assert contents(tmp_path) == before


def test_a_damaged_list_of_tables_is_reported_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    run(open_store(path).close())
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"\xa5" * 3996 + whole[4096:])
    assert_refused(path, StoredDataError, r"limits\.db")


def test_a_file_of_before_there_were_receipts_gets_their_table(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    with opened(path):
        pass
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE receipts")
    for _ in range(2):
        with opened(path) as store:
            assert run(store.receipts.read(ReceiptKey("n", "KEY#k"))) is None


def test_missing_tables_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    run(open_store(path).close())
    db = sqlite3.connect(path)
    db.execute("DROP TABLE namespaces")
    db.close()
    with opened(path) as store, pytest.raises(StoredDataError, match="no such table: namespaces"):
        run(store.ping())


def test_the_header_says_whose_file_it_is(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    run(open_store(path).close())
    header = path.read_bytes()[:100]
    assert header[:16] == b"SQLite format 3\0"
    assert int.from_bytes(header[60:64]) == FILE_VERSION
    assert int.from_bytes(header[68:72]) == APPLICATION_ID


def test_a_deleted_file_is_noticed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    path = home / "limits.db"
    with opened(path) as store:
        create(store)
        for left in list(home.iterdir()):
            left.unlink()
        assert_gone(store)
        path.touch()
        assert_gone(store)
        path.unlink()
        home.rmdir()
        assert_gone(store)
        home.touch()
        assert_gone(store)
    assert home.read_bytes() == b""


def assert_gone(store: SqliteStore) -> None:
    with pytest.raises(StorageUnavailable, match="has been deleted") as raised:
        take_one(store)
    assert not raised.value.retryable


def test_a_path_that_the_system_refuses_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="cannot be reached"):
        open_store(tmp_path / ("x" * 300))


def test_a_file_put_in_place_of_another_is_the_one_used(tmp_path: Path) -> None:
    path, other = tmp_path / "limits.db", tmp_path / "other.db"
    with opened(other) as store:
        create(store)
    with opened(path) as store:
        create(store)
        take_one(store)
        for journal in tmp_path.glob("limits.db-*"):
            journal.unlink()
        other.rename(path)
        assert taken(store) == 0
        with opened(path, create=False) as neighbour:
            take_one(neighbour)
            take_one(store)
            assert taken(neighbour) == taken(store) == 2


def test_a_store_that_was_closed_says_so(tmp_path: Path) -> None:
    store = open_store(tmp_path / "limits.db")
    run(store.close())
    run(store.close())
    with pytest.raises(RuntimeError, match="has been closed"):
        run(store.ping())


def test_many_processes_make_the_same_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    gate = Gate()

    def work() -> None:
        gate.wait()
        with opened(path) as store:
            create(store)
            take_one(store)

    children = [fork(work) for _ in range(8)]
    gate.open()
    assert join(*children) == [0] * 8
    with opened(path, create=False) as store:
        assert taken(store) == 8


def test_a_crash_while_the_file_is_made_leaves_no_mess(tmp_path: Path) -> None:
    for attempt in range(15):
        path = tmp_path / f"{attempt}.db"
        child = fork(lambda path=path: create(open_store(path)))  # type: ignore[misc]
        time.sleep(random.uniform(0, 0.02))
        kill(child)
        with opened(path) as store:
            create(store)
            assert taken(store) == 0


def test_a_crash_between_the_pages_of_a_new_file_is_undone(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole.db", tmp_path / "limits.db"
    run(open_store(whole).close())
    # The journal of a file that was empty before: magic, no records, nonce, no pages before.
    magic = bytes.fromhex("d9d505f920a163d7")
    journal = magic + struct.pack(">5I", 0, 1, 0, 512, 4096).ljust(504, b"\0")
    for creating in (False, True):
        path.write_bytes(whole.read_bytes()[:4096])
        (tmp_path / "limits.db-journal").write_bytes(journal)
        if not creating:
            assert_missing(path)
            continue
        with opened(path) as store:
            create(store)


def test_the_schema_is_part_of_the_package() -> None:
    schema = files("zae_limiter.backends.sqlite") / "schema.sql"
    assert "CREATE TABLE" in schema.read_text("utf-8")


def test_a_second_store_on_the_same_file_does_not_free_the_locks_of_the_first(
    tmp_path: Path,
) -> None:
    path = tmp_path / "limits.db"
    gate = Gate()

    def leave() -> None:
        gate.wait()
        with opened(path) as store:
            take_one(store)

    with opened(path) as first:
        create(first)
        child = fork(leave)
        take_one(first)
        run(open_store(path).close())
        gate.open()
        # Were the first's locks gone, the child would unlink the journal as the last to leave.
        assert join(child) == [0]
        assert (tmp_path / "limits.db-wal").exists()
        take_one(first)
        assert taken(first) == 3
