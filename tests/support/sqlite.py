"""What the tests of the SQLite store share."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from zae_limiter.backends.sqlite import SqliteStore
from zae_limiter.core.audit import AuditEvent
from zae_limiter.core.bucket import Bucket, BucketAddress, full_bucket
from zae_limiter.core.idempotency import operation_id
from zae_limiter.core.limit import MILLI, Limit, LimitSet
from zae_limiter.core.writes import Adjust, Create, Granted, Outcome
from zae_limiter.runtime.blocking import BlockingIo, run

T0_MS = 1_700_000_000_000
CAPACITY = 1_000_000
LIMITS = LimitSet.of([Limit.per_day("rpd", CAPACITY)])
ADDRESS = BucketAddress("ns", "user-1", "gpt-4")
EVENT = AuditEvent("01HF", "2023-11-14T22:13:20Z", "entity_created", "user-1")

_numbers = count()


def operation() -> str:
    """An id that no other operation of these tests has, in any process."""
    return operation_id(T0_MS, f"{os.getpid():x}-{next(_numbers):x}")


def open_store(path: Path, *, create: bool = True, wait_s: float = 5.0) -> SqliteStore:
    return run(SqliteStore.open(str(path), BlockingIo(), create=create, wait_s=wait_s))


@contextmanager
def opened(path: Path, *, create: bool = True, wait_s: float = 5.0) -> Iterator[SqliteStore]:
    store = open_store(path, create=create, wait_s=wait_s)
    try:
        yield store
    finally:
        run(store.close())


def create(
    store: SqliteStore, address: BucketAddress = ADDRESS, expires_at_s: int | None = None
) -> Outcome:
    """Put a full bucket."""
    bucket = full_bucket(LIMITS, T0_MS)._replace(expires_at_s=expires_at_s)
    return run(store.buckets.write(address, Create(operation(), T0_MS, bucket)))


def take_one(store: SqliteStore, address: BucketAddress = ADDRESS, at_ms: int = T0_MS) -> None:
    """Take a token as an acquire does."""
    write = Adjust(operation(), at_ms, {"rpd": MILLI}, 1)
    assert isinstance(run(store.buckets.write(address, write)), Granted)


def take_many(store: SqliteStore, times: int) -> None:
    for _ in range(times):
        take_one(store)


def adjust(store: SqliteStore, tokens: int, at_ms: int = T0_MS) -> None:
    """Charge tokens, or give them back."""
    write = Adjust(operation(), at_ms, {"rpd": tokens * MILLI}, 0)
    assert isinstance(run(store.buckets.write(ADDRESS, write)), Granted)


def read(store: SqliteStore, address: BucketAddress = ADDRESS) -> Bucket | None:
    return run(store.buckets.read([address])).get(address)


def taken(store: SqliteStore, address: BucketAddress = ADDRESS) -> int:
    """Tokens taken so far. What the bucket says of itself must add up."""
    bucket = read(store, address)
    assert bucket is not None
    cell = bucket.cells["rpd"]
    assert cell.tokens_milli + cell.consumed_milli == CAPACITY * MILLI
    assert bucket.acquires * MILLI == cell.consumed_milli
    return bucket.acquires


def fork(work: Callable[[], object]) -> int:
    """Run `work` in a child, which ends with it, and return its process id."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def join(*pids: int) -> list[int]:
    """Wait for children; their exit codes."""
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    join(pid)


class Gate:
    """Processes wait at it until it is opened. Make it before forking."""

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe()

    def wait(self) -> None:
        os.close(self._write_end)
        assert os.read(self._read_end, 1) == b""

    def open(self) -> None:
        os.close(self._write_end)
        os.close(self._read_end)
