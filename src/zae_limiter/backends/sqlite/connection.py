"""A connection to the file is shared by the threads of a process, never by two processes.

SQLite keeps its locks in the memory of a process, but the system does not hand them on to a child.
A connection that is open across a fork would let the child believe that it holds locks, and lose
writes once the parent is gone. So all connections are closed before a fork, and opened again when
they are next used.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...core.exceptions import InfrastructureNotFoundError, StorageUnavailable
from ...local.breaker import FAIR_S, PROBE_S, Breaker, Turn
from ...local.call_times import CallTimes
from ...local.deadline import left_s
from ...ports.io import Io
from ...ports.repository_protocol import StoreClosed
from .errors import busy_error, is_busy, translate
from .file import connect, identity
from .waiting import patiently

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]


# How long one call waits for a locked file before others of this process have their turn.
_TURN_S = 0.005


class _Locked:
    """The file is still locked by another process."""


class _Session:
    """A session is the connection of one process, and the lock that its threads share.

    The lock knows its owner: an interrupt may come between taking the lock and noting that it was
    taken, and then only the lock can tell that it is to be released.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock: Any = threading.RLock()
        self.db: sqlite3.Connection | None = None
        self.file: tuple[int, int] | None = None
        _sessions[id(self)] = self

    def disconnect(self) -> None:
        """Close the connection. The caller holds the lock."""
        db, self.db = self.db, None
        if db is not None:
            db.close()


class Connection:
    """A connection runs functions as transactions, off the event loop.

    `aside`: the connection is for questions about many rows. It has a thread and a lock of its own,
    so that calls of another connection do not wait for it.
    """

    def __init__(
        self,
        path: str,
        io: Io,
        wait_s: float,
        breaker: Breaker | None = None,
        times: CallTimes | None = None,
        *,
        aside: bool = False,
    ) -> None:
        self._path = path
        self.breaker = breaker or Breaker(0)
        self.times = times or CallTimes()
        self._offload = io.offload_aside if aside else io.offload
        self._wait_s = wait_s
        self._session = _Session()
        self._closed = False

    async def open(self, *, create: bool) -> None:
        """Open the file. `create`: make the file if it is missing."""
        deadline = self._deadline()
        await self._offload(lambda: self._open(deadline, create=create))

    async def read(self, work: Work[T]) -> T:
        """Run `work` on one snapshot of the data."""
        return await self._patiently("read", lambda db: _transaction(db, "BEGIN", work))

    async def select(self, statement: str, values: Sequence[object]) -> list[Any]:
        """Return all rows of one statement, which is a snapshot by itself."""
        return await self._patiently("read", lambda db: db.execute(statement, values).fetchall())

    async def write(self, work: Work[T]) -> T:
        """Run `work` as one transaction: all of it takes effect, or it raises and nothing does.

        `work` may be run again when the file was locked, so it must have no other effects.
        """
        turn, began_s = self.breaker.enter(), time.monotonic()
        if turn is Turn.REFUSED:
            message = f"{self._path} is locked, and was not tried again: {self.breaker.cause}"
            raise StorageUnavailable(message, retryable=False)
        longest_s = PROBE_S if turn is Turn.PROBE else self._wait_s
        try:
            found = await self._patiently(
                "write", lambda db: _transaction(db, "BEGIN IMMEDIATE", work), longest_s
            )
        except BaseException as error:
            is_fair = turn is Turn.PROBE or time.monotonic() - began_s >= FAIR_S
            if is_fair and _is_locked(error):
                self.breaker.failed(error)
            elif turn is Turn.PROBE:
                self.breaker.give_up_probe()
            raise
        self.breaker.succeeded()
        return found

    async def _patiently(self, operation: str, work: Work[T], longest_s: float | None = None) -> T:
        """Run `work`, and again while the file is locked, until the deadline.

        The thread is left free again and again: a caller with less time must not wait in it for
        one with more.
        """
        deadline, began_s = self._deadline(longest_s), time.monotonic()
        try:
            while True:
                found = await self._offload(lambda: self._attempt(work, deadline))
                if not isinstance(found, _Locked):
                    return found
        finally:
            self.times.note(operation, time.monotonic() - began_s)

    async def close(self) -> None:
        """Close the file."""
        await self._offload(self._close)

    def _deadline(self, longest_s: float | None = None) -> float:
        # Set before the call queues for a thread and for the lock. Without this, callers behind
        # one that waits in vain would each wait as long again.
        longest_s = self._wait_s if longest_s is None else longest_s
        return time.monotonic() + max(0, min(longest_s, left_s()))

    def _open(self, deadline: float, *, create: bool) -> None:
        session = self._session_here()
        try:
            with session.lock:
                self._connect(session, deadline, create=create)
        except sqlite3.Error as error:
            raise translate(self._path, error) from error

    def _attempt(self, work: Work[T], deadline: float) -> T | _Locked:
        """Run `work`, which leaves nothing behind when it fails."""
        session = self._session_here()
        soon = min(deadline, time.monotonic() + _TURN_S)
        lock = session.lock
        try:
            if not lock.acquire(timeout=max(0, deadline - time.monotonic())):
                raise busy_error("other threads wait for the file")
            db = self._current(session, deadline)
            return patiently(soon, lambda: work(db))
        except sqlite3.Error as error:
            if is_busy(error) and time.monotonic() < deadline:
                return _Locked()
            raise translate(self._path, error) from error
        finally:
            # Not in a function or a context manager of Python: an interrupt at its first step would
            # leave the lock taken forever.
            try:
                if lock._is_owned():
                    lock.release()
            except BaseException:
                if lock._is_owned():
                    lock.release()
                raise

    def _session_here(self) -> _Session:
        session = self._session
        if session.pid != os.getpid():
            if session.db is not None:
                _inherited.append(session)
            session = self._session = _Session()
        return session

    def _current(self, session: _Session, deadline: float) -> sqlite3.Connection:
        """Return the connection to the file that is at the path now.

        Without this check, a process would go on writing to a deleted file, which no other
        process sees.
        """
        if self._closed:
            raise StoreClosed(f"the store {self._path} has been closed")
        if session.db is not None and session.file == identity(self._path):
            return session.db
        session.disconnect()
        try:
            return self._connect(session, deadline, create=False)
        except InfrastructureNotFoundError as error:
            gone = f"{self._path} has been deleted"
            raise StorageUnavailable(gone, error, retryable=False) from error

    def _connect(self, session: _Session, deadline: float, *, create: bool) -> sqlite3.Connection:
        session.db = connect(self._path, create=create, deadline=deadline)
        session.file = identity(self._path)
        return session.db

    def _close(self) -> None:
        session = self._session_here()
        with session.lock:
            self._closed = True
            session.disconnect()


def _is_locked(error: BaseException) -> bool:
    cause = error.cause if isinstance(error, StorageUnavailable) else None
    return isinstance(cause, sqlite3.Error) and is_busy(cause)


def _transaction(db: sqlite3.Connection, begin: str, work: Work[T]) -> T:
    try:
        db.execute(begin)
        result = work(db)
        db.execute("COMMIT")
    except BaseException:
        # A COMMIT that failed is undone, too: an error always means that nothing took effect.
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return result


_sessions: weakref.WeakValueDictionary[int, _Session] = weakref.WeakValueDictionary()
_forking: dict[int, list[_Session]] = {}
# Longer than any transaction. A fork inside a transaction would otherwise wait for itself forever.
_FORK_WAIT_S = 10.0
# Connections that came along with a fork of which Python was not told. They are never closed:
# closing one could unlink the journal that the parent is writing to.
_inherited: list[_Session] = []


def _before_fork() -> None:
    held = _forking[threading.get_ident()] = []
    for session in _sessions_here():
        # A thread that forks inside a transaction owns the lock, and keeps its connection.
        if not session.lock._is_owned() and session.lock.acquire(timeout=_FORK_WAIT_S):
            held.append(session)
            session.disconnect()


def _after_fork_in_parent() -> None:
    for session in _forking.pop(threading.get_ident(), ()):
        session.lock.release()


def _sessions_here() -> list[_Session]:
    alive = [reference() for reference in _sessions.valuerefs()]
    return [session for session in alive if session is not None and session.pid == os.getpid()]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent)
