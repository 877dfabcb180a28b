"""What several want to know at the same time is read once.

An interrupt may arrive between any two steps. A reading that stayed under way would stop
everyone who joins it. So whoever may have begun one ends it whatever happens, and again if an
interrupt came in the midst of ending it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar, cast

from ..ports.io import Io, Signal
from .forks import forget_in_child, new_lock

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Reading:
    """One that is under way, and who waits for it. One that was given up has no outcome."""

    waiting: list[Signal] = field(default_factory=list)
    outcome: object = None
    failure: Exception | None = None


class Readings:
    """Those under way in this process. Any number of threads and tasks may share one."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, _Reading] = {}
        self._lock = new_lock()
        forget_in_child(self)

    async def share(self, io: Io, what: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """Read something, or hear from who is reading it.

        A reading that fails fails for all. If it is given up, one of those who wait begins
        another.
        """
        while True:
            mine = _Reading()
            try:
                joined = self._join(io, what, mine)
                if joined is None:
                    mine.outcome = found = await read()
                    return found
            except Exception as error:
                mine.failure = error
                raise
            finally:
                try:
                    self._end(what, mine)
                except BaseException:
                    self._end(what, mine)
                    raise
            theirs, signal = joined
            await signal.wait(None)
            if theirs.failure is not None:
                raise theirs.failure
            if theirs.outcome is not None:
                return cast("T", theirs.outcome)

    def _join(self, io: Io, what: Hashable, mine: _Reading) -> tuple[_Reading, Signal] | None:
        """Wait for the one that is under way, or begin it."""
        with self._lock:
            theirs = self._under_way.setdefault(what, mine)
            if theirs is mine:
                return None
            signal = io.signal()
            theirs.waiting.append(signal)
            return theirs, signal

    def _end(self, what: Hashable, mine: _Reading) -> None:
        with self._lock:
            if self._under_way.get(what) is mine:
                del self._under_way[what]
        for signal in mine.waiting:
            signal.set()

    def forget(self) -> None:
        """Forget who reads and who waits."""
        self._under_way = {}
