"""Several processes on one file: forks, crashes, and writers that never wait their turn."""

from __future__ import annotations

import ctypes
import os
import random
import sqlite3
import subprocess
import sys
import time
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
    take_many,
    take_one,
    taken,
)
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.runtime.blocking import run


def assert_whole(path: Path) -> None:
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()


def test_parent_and_children_share_a_store_that_was_open_before_the_fork(tmp_path: Path) -> None:
    with opened(tmp_path / "limits.db") as store:
        create(store)
        children = [fork(lambda: take_many(store, 50)) for _ in range(3)]
        take_many(store, 50)
        assert join(*children) == [0, 0, 0]
        assert taken(store) == 200


def test_a_child_of_a_child_works_too(tmp_path: Path) -> None:
    with opened(tmp_path / "limits.db") as store:
        create(store)

        def descend() -> None:
            take_one(store)
            assert join(fork(lambda: take_one(store))) == [0]
            take_one(store)

        assert join(fork(descend)) == [0]
        assert taken(store) == 3


def test_a_child_that_closes_leaves_the_parent_its_store(tmp_path: Path) -> None:
    with opened(tmp_path / "limits.db") as store:
        create(store)
        assert join(fork(lambda: run(store.close()))) == [0]
        take_one(store)
        assert taken(store) == 1


def test_a_parent_that_leaves_first_takes_nothing_from_its_child(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    store = open_store(path)
    create(store)
    gate = Gate()
    ready, told = os.pipe()

    def outlive() -> None:
        take_one(store)
        os.write(told, b"x")
        gate.wait()
        take_one(store)
        # Do not leave in good order: that would save what was lost meanwhile.
        os._exit(0)

    child = fork(outlive)
    take_one(store)
    os.read(ready, 1)
    run(store.close())
    with opened(path) as stranger:
        gate.open()
        assert join(child) == [0]
        assert taken(stranger) == 3


def test_a_fork_that_python_was_not_told_of_is_noticed(tmp_path: Path) -> None:
    with opened(tmp_path / "limits.db") as store:
        create(store)
        pid = ctypes.PyDLL(None).fork()
        if pid == 0:
            try:
                take_many(store, 10)
                os._exit(0)
            finally:
                os._exit(1)
        take_many(store, 10)
        assert join(pid) == [0]
        assert taken(store) == 20


BUSY_PARENT = """
import os, sys, threading
from pathlib import Path
from tests.support.sqlite import create, fork, join, open_store, take_many, take_one, taken

store = open_store(Path(sys.argv[1]))
create(store)
done = threading.Event()
counts = [0, 0, 0]

def hammer(index):
    while not done.is_set():
        take_one(store)
        counts[index] += 1

threads = [threading.Thread(target=hammer, args=(index,)) for index in range(3)]
for thread in threads:
    thread.start()
children = [fork(lambda: take_many(store, 20)) for _ in range(10)]
exits = join(*children)
done.set()
for thread in threads:
    thread.join()
assert exits == [0] * 10, exits
assert taken(store) == sum(counts) + 200, (taken(store), counts)
"""


def test_a_fork_in_the_middle_of_other_threads_writes_loses_nothing(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    finished = subprocess.run(
        [sys.executable, "-c", BUSY_PARENT, str(tmp_path / "limits.db")],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (finished.returncode, finished.stderr) == (0, "")


@pytest.mark.slow
def test_writers_that_are_killed_leave_a_file_that_adds_up(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    with opened(path) as store:
        create(store)
    answered = killed = 0
    for _ in range(8):
        ends = [os.pipe() for _ in range(4)]
        writers = [fork(lambda end=write: tell_each_taking(path, end)) for _, write in ends]  # type: ignore[misc]
        answered += sum(len(os.read(read_end, 1)) for read_end, _ in ends)
        time.sleep(random.uniform(0.02, 0.1))
        for writer, (_, write_end) in zip(writers, ends, strict=True):
            kill(writer)
            os.close(write_end)
        answered += sum(count_bytes(read_end) for read_end, _ in ends)
        killed += len(writers)
        with opened(path) as store:
            # Each writer may have been killed between taking and telling.
            assert answered <= taken(store) <= answered + killed
        assert_whole(path)
    assert answered >= killed


def tell_each_taking(path: Path, write_end: int) -> None:
    with opened(path) as store:
        while True:
            take_one(store)
            os.write(write_end, b"x")


def count_bytes(read_end: int) -> int:
    with open(read_end, "rb") as told:
        return len(told.read())


@pytest.mark.parametrize("more", [0, 100])
def test_a_crash_in_the_middle_of_saving_the_journal_is_not_taken_for_damage(
    tmp_path: Path, more: int
) -> None:
    path = tmp_path / "limits.db"
    store = open_store(path)
    create(store)

    def crash() -> None:
        for number in range(100):
            take_one(store)
            create(store, BucketAddress("ns", f"user-{number}", "gpt-4"))
        os._exit(0)

    join(fork(crash))
    journal = tmp_path / "limits.db-wal"
    length, unsaved = path.stat().st_size, journal.read_bytes()
    run(open_store(path).close())
    saved = path.read_bytes()
    assert len(saved) > length
    # The first page, which tells the new length, is saved before the pages that are new.
    path.write_bytes(saved[: length + more])
    journal.write_bytes(unsaved)
    with opened(path, create=False) as store:
        assert taken(store) == 100
    assert_whole(path)


def test_processes_that_hammer_one_bucket_all_get_their_turn(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    with opened(path) as store:
        create(store)
    gate = Gate()

    def hammer() -> None:
        gate.wait()
        with opened(path) as store:
            take_many(store, 300)

    children = [fork(hammer) for _ in range(4)]
    gate.open()
    assert join(*children) == [0] * 4
    with opened(path) as store:
        assert taken(store) == 1200
