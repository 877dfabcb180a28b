"""Single-flight: tasks and threads that need the result of an equal call share one call.

The task that comes first makes the call and is the leader; tasks that come before the call has
ended are its followers and wait for the result. An interrupt may arrive between any two steps,
and a call that stayed registered would block its followers for ever. So a leader removes its call
whatever happens, and a second time if an interrupt arrived while it did so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar, cast

from ..ports.io import Io, Signal
from .fork_safety import forget_in_child, new_lock

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Call:
    """A call under way. A cancelled call has neither a result nor a failure."""

    followers: list[Signal] = field(default_factory=list)
    result: object = None
    has_result: bool = False
    failure: Exception | None = None


class SingleFlight:
    """The calls under way in this process. Any number of threads and tasks may share it."""

    def __init__(self) -> None:
        self._calls: dict[Hashable, _Call] = {}
        self._lock = new_lock()
        forget_in_child(self)

    async def share(self, io: Io, key: Hashable, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call, or wait for the result of the call with the same key.

        A call that fails fails for all followers. If the leader is cancelled, a follower
        becomes the next leader.
        """
        while True:
            mine = _Call()
            try:
                joined = self._join(io, key, mine)
                if joined is None:
                    mine.result = found = await call()
                    mine.has_result = True
                    return found
            except Exception as error:
                mine.failure = error
                raise
            finally:
                try:
                    self._end(key, mine)
                except BaseException:
                    self._end(key, mine)
                    raise
            leading, signal = joined
            await signal.wait(None)
            if leading.failure is not None:
                raise leading.failure
            if leading.has_result:
                return cast("T", leading.result)

    def _join(self, io: Io, key: Hashable, mine: _Call) -> tuple[_Call, Signal] | None:
        """Follow the call under way, or register this one as leader and return None."""
        with self._lock:
            leading = self._calls.setdefault(key, mine)
            if leading is mine:
                return None
            signal = io.signal()
            leading.followers.append(signal)
            return leading, signal

    def _end(self, key: Hashable, mine: _Call) -> None:
        with self._lock:
            if self._calls.get(key) is mine:
                del self._calls[key]
        for signal in mine.followers:
            signal.set()

    def forget(self) -> None:
        """Forget the calls, whose leaders and followers are threads of another process."""
        self._calls = {}
