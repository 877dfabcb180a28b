"""Threads, a file that others hold locked, and what each failure of SQLite turns into."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.sqlite import (
    ADDRESS,
    T0_MS,
    create,
    opened,
    operation,
    read,
    take_many,
    take_one,
    taken,
)
from zae_limiter.backends.sqlite import SqliteStore
from zae_limiter.backends.sqlite.errors import translate
from zae_limiter.core.exceptions import StorageUnavailable, StoredDataError
from zae_limiter.core.limit import MILLI
from zae_limiter.core.writes import Adjust, Granted
from zae_limiter.runtime.asyncio_driver import AsyncioIo
from zae_limiter.runtime.blocking import run

# Calls that wait at the same time need one wait, and in turn far more than a busy machine.
_WAIT_S, _CALLS = 0.3, 200
_IN_TURN_S = _WAIT_S * _CALLS


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another connection is writing, and takes its time."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        db.execute("ROLLBACK")
        db.close()


def test_threads_share_a_store(tmp_path: Path) -> None:
    with opened(tmp_path / "limits.db") as store, ThreadPoolExecutor(8) as pool:
        create(store)
        for done in [pool.submit(take_one, store) for _ in range(400)]:
            done.result()
        assert taken(store) == 400


def test_a_file_locked_for_too_long_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    with opened(path, wait_s=0.05) as store:
        create(store)
        with locked(path), pytest.raises(StorageUnavailable, match="is locked") as raised:
            take_one(store)
        assert not raised.value.retryable
        assert not raised.value.ambiguous
        assert isinstance(raised.value.cause, sqlite3.OperationalError)
        take_one(store)
        assert taken(store) == 1


def test_reading_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    with opened(path, wait_s=0) as store:
        create(store)
        with locked(path):
            assert read(store) is not None
            with pytest.raises(StorageUnavailable):
                run(store.ping())
        run(store.ping())


def test_a_writer_waits_until_the_file_is_free(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    with opened(path, wait_s=30) as store:
        create(store)
        with ThreadPoolExecutor(1) as pool:
            with locked(path):
                done = pool.submit(take_one, store)
                with pytest.raises(TimeoutError):
                    done.result(timeout=0.05)
            done.result()
        assert taken(store) == 1


def test_threads_waiting_for_each_other_are_bounded_too(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    failures: list[BaseException] = []

    def attempt(store: SqliteStore) -> None:
        try:
            take_one(store)
        except StorageUnavailable as error:
            failures.append(error)

    with opened(path, wait_s=_WAIT_S) as store:
        create(store)
        with locked(path):
            threads = [threading.Thread(target=attempt, args=(store,)) for _ in range(_CALLS)]
            began_s = time.monotonic()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert time.monotonic() - began_s < _IN_TURN_S / 2
        assert len(failures) == _CALLS
        assert taken(store) == 0


async def test_a_locked_file_does_not_block_the_event_loop(tmp_path: Path) -> None:
    path, io = tmp_path / "limits.db", AsyncioIo()
    with opened(path) as setup:
        create(setup)
    store = await SqliteStore.open(str(path), io, create=False, wait_s=20)
    take = Adjust(operation(), T0_MS, {"rpd": MILLI}, 1)
    with locked(path):
        writing = asyncio.gather(*(store.buckets.write(ADDRESS, take) for _ in range(3)))
        # A loop that was blocked could not free the file again: the writes would fail.
        for _ in range(10):
            await asyncio.sleep(0.01)
        assert not writing.done()
    assert [type(outcome) for outcome in await writing] == [Granted] * 3
    await store.close()
    await io.close()


async def test_calls_that_queue_behind_a_locked_file_do_not_wait_in_turn(tmp_path: Path) -> None:
    path, io = tmp_path / "limits.db", AsyncioIo()
    with opened(path) as setup:
        create(setup)
    store = await SqliteStore.open(str(path), io, create=False, wait_s=_WAIT_S)
    take = Adjust(operation(), T0_MS, {"rpd": MILLI}, 1)
    began_s = time.monotonic()
    with locked(path):
        outcomes = await asyncio.gather(
            *(store.buckets.write(ADDRESS, take) for _ in range(_CALLS)), return_exceptions=True
        )
    assert [type(outcome) for outcome in outcomes] == [StorageUnavailable] * _CALLS
    assert time.monotonic() - began_s < _IN_TURN_S / 2
    await store.close()
    await io.close()


async def test_event_loops_and_threads_may_share_a_file(tmp_path: Path) -> None:
    path, io = tmp_path / "limits.db", AsyncioIo()
    with opened(path) as blocking, ThreadPoolExecutor(1) as pool:
        create(blocking)
        store = await SqliteStore.open(str(path), io, create=False)
        other = asyncio.get_running_loop().run_in_executor(pool, take_many, blocking, 50)
        takes = [Adjust(operation(), T0_MS, {"rpd": MILLI}, 1) for _ in range(50)]
        await asyncio.gather(*(store.buckets.write(ADDRESS, take) for take in takes))
        await other
        assert taken(blocking) == 100
        await store.close()
        await io.close()


def test_a_work_that_raises_takes_no_effect(tmp_path: Path) -> None:
    with opened(tmp_path / "limits.db") as store:
        create(store)

        def interrupted(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM buckets")
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(store._connection.write(interrupted))
        take_one(store)
        assert taken(store) == 1


@contextmanager
def no_file_longer_than(length: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_commit_that_cannot_be_written_takes_no_effect(tmp_path: Path) -> None:
    with opened(tmp_path / "limits.db") as store:
        create(store)
        take_one(store)
        length = (tmp_path / "limits.db-wal").stat().st_size
        with no_file_longer_than(length), pytest.raises(StorageUnavailable) as raised:
            take_one(store)
        assert not raised.value.ambiguous
        assert taken(store) == 1
        take_one(store)
        assert taken(store) == 2


def sqlite_error(tmp_path: Path, *statements: str) -> sqlite3.Error:
    """The error that the last of the statements raises."""
    db = sqlite3.connect(tmp_path / "any.db", isolation_level=None, timeout=0)
    *before, last = statements
    for statement in before:
        db.execute(statement)
    with pytest.raises(sqlite3.Error) as raised:
        db.execute(last).fetchall()
    db.close()
    return raised.value


def test_a_full_disk_is_unavailable(tmp_path: Path) -> None:
    error = sqlite_error(
        tmp_path,
        "CREATE TABLE t (x)",
        "PRAGMA max_page_count = 2",
        "INSERT INTO t VALUES (zeroblob(100000))",
    )
    translated = translate("limits.db", error)
    assert isinstance(translated, StorageUnavailable)
    assert "limits.db cannot grow: database or disk is full" in str(translated)


def test_a_read_only_file_is_unavailable(tmp_path: Path) -> None:
    error = sqlite_error(tmp_path, "PRAGMA query_only = ON", "CREATE TABLE t (x)")
    translated = translate("limits.db", error)
    assert isinstance(translated, StorageUnavailable)
    assert "limits.db cannot be written to" in str(translated)


def test_text_that_is_no_text_is_damage(tmp_path: Path) -> None:
    error = sqlite_error(tmp_path, "SELECT CAST(x'ff' AS TEXT)")
    assert isinstance(translate("limits.db", error), StoredDataError)


def test_a_mistake_of_ours_surfaces_as_it_is(tmp_path: Path) -> None:
    error = sqlite_error(tmp_path, "SELECT FROM WHERE")
    assert translate("limits.db", error) is error
