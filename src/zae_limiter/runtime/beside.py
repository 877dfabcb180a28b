"""Calls beside the caller: an interrupt of the caller's thread or greenlet does not reach them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

Beside = Callable[[Callable[[], Any]], Any]
"""A strategy that makes a call, which never raises, and returns its result. An interrupt is held
back until then, and raised in place of the result."""


def choose_beside(*, shared: bool) -> Beside | None:
    """Return the strategy for the present caller; None where it can as well make the call itself.

    Any greenlet may be interrupted, by a timeout of gevent. Of all threads only the main thread
    gets signals, and another thread is worth its cost only if other callers depend on the call.
    """
    if is_gevent_patched():
        return in_greenlet
    if shared and threading.current_thread() is threading.main_thread():
        return in_thread
    return None


def is_gevent_patched() -> bool:
    """Tell whether sockets yield to other greenlets."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("socket"))


def in_greenlet(call: Callable[[], Any]) -> Any:
    """Make the call in a greenlet of its own."""
    import gevent

    greenlet = gevent.spawn(copy_context().run, call)
    try:
        _hold(greenlet.ready, greenlet.join, None)
    except BaseException as error:
        # An interrupt as `_hold` begins is not held back there.
        _hold(greenlet.ready, greenlet.join, error)
    return greenlet.value


class _Errand:
    """An errand is a call that is made once at most, by the first thread that takes it."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._context = copy_context()
        self._free = threading.Lock()
        self.over = threading.Lock()
        self.over.acquire()
        self.is_over = False
        self.result: Any = None

    def take(self) -> bool:
        return self._free.acquire(blocking=False)

    def run(self) -> None:
        if self.take():
            self.result = self._context.run(self._call)
            self.is_over = True
            self.over.release()


def in_thread(call: Callable[[], Any]) -> Any:
    """Make the call in a thread of its own."""
    errand = _Errand(call)

    def hold(interruption: BaseException | None = None) -> None:
        _hold(lambda: errand.is_over, errand.over.acquire, interruption)

    try:
        threading.Thread(target=errand.run, name="zae-limiter", daemon=True).start()
        hold()
    except BaseException as error:
        if errand.take():
            if isinstance(error, RuntimeError):
                # The interpreter ends, or the process has as many threads as it may have.
                return call()
            raise
        # An interrupt as `hold` begins is not held back there.
        hold(error)
    return errand.result


def _hold(
    is_over: Callable[[], bool],
    wait: Callable[[], object],
    interruption: BaseException | None,
) -> None:
    """Wait until a call is over, then raise the first interrupt that came meanwhile."""
    try:
        while not is_over():
            wait()
    except BaseException as error:
        # Called again, not looped: an interrupt may come between any two steps of a loop.
        _hold(is_over, wait, interruption or error)
    if interruption is not None:
        raise interruption
