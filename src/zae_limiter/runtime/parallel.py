"""This module runs several calls for the blocking driver: in turn, in a few threads, or as
greenlets."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import Any

from ..core.exceptions import InvalidModeError
from .beside import is_gevent_patched

Gather = Callable[[Sequence[Callable[[], Any]]], list[Any]]
"""A strategy that runs all calls, none of which raises, and returns their results in order."""

PARALLEL_MODES = ("auto", "gevent", "threadpool", "serial")
_WORKERS = 2


def serial(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run the calls one after the other, in this thread."""
    return [call() for call in calls]


class Threads:
    """A pool of workers, two as a rule, made when first needed and again after a fork.

    A caller that finds all workers busy makes its calls in turn, in its own thread: otherwise the
    workers would do the work of all threads of a process.
    """

    def __init__(self, workers: int = _WORKERS) -> None:
        self._workers = workers
        self._pool: ThreadPoolExecutor | None = None
        self._free = threading.Semaphore(workers)
        self._pid = 0

    def __call__(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        if len(calls) < 2:
            return serial(calls)
        pool, free = self._current_pool()
        if not free.acquire(blocking=False):
            return serial(calls)
        try:
            return _in_parallel(pool, calls)
        finally:
            free.release()

    def _current_pool(self) -> tuple[ThreadPoolExecutor, threading.Semaphore]:
        if self._pool is None or self._pid != os.getpid():
            self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="zae-limiter")
            self._free = threading.Semaphore(self._workers)
            self._pid = os.getpid()
        return self._pool, self._free


def _in_parallel(pool: ThreadPoolExecutor, calls: Sequence[Callable[[], Any]]) -> list[Any]:
    later: list[Future[Any]] = [pool.submit(copy_context().run, call) for call in calls[1:]]
    try:
        first = calls[0]()
    finally:
        _wait_for_all(later)
    return [first, *(future.result() for future in later)]


def _wait_for_all(futures: Sequence[Future[Any]]) -> None:
    """Wait for all futures, even after a keyboard interrupt: a call left behind would have an
    outcome that no caller learns."""
    try:
        wait(futures)
    except BaseException:
        wait(futures)
        raise


def greenlets(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run the calls as gevent greenlets."""
    import gevent

    spawned = [gevent.spawn(copy_context().run, call) for call in calls]
    try:
        gevent.joinall(spawned)
    except BaseException:
        # A greenlet left behind by a timeout would have an outcome that no caller learns.
        gevent.joinall(spawned)
        raise
    return [greenlet.value for greenlet in spawned]


def choose_gather(mode: str, *, parallel_helps: bool) -> Gather:
    """Return the strategy for a mode. `auto` chooses by the process and the store."""
    if mode not in PARALLEL_MODES:
        raise InvalidModeError("parallel_mode", mode, f"must be one of {', '.join(PARALLEL_MODES)}")
    if mode == "gevent":
        if not is_gevent_patched():
            warnings.warn("parallel_mode='gevent' without monkey-patched sockets", stacklevel=2)
        return greenlets
    if mode == "threadpool":
        if os.cpu_count() == 1:
            warnings.warn("parallel_mode='threadpool' on a single CPU", stacklevel=2)
        return Threads()
    if mode == "serial" or not parallel_helps:
        return serial
    if is_gevent_patched():
        return greenlets
    return serial if os.cpu_count() == 1 else Threads()
