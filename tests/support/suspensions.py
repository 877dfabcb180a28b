"""A task that is cancelled at its k-th suspension, once or from then on at every one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any


@coroutine
def _watched(
    work: Coroutine[Any, Any, Any], suspended: Callable[[int], None]
) -> Generator[Any, None, Any]:
    """Run the work, and call a function with the number of each suspension."""
    count, thrown = 0, None
    while True:
        try:
            awaited = work.send(None) if thrown is None else work.throw(thrown)
        except StopIteration as ended:
            return ended.value
        count += 1
        suspended(count)
        thrown = None
        try:
            yield awaited
        except BaseException as error:
            thrown = error


async def _run(work: Coroutine[Any, Any, Any], suspended: Callable[[int], None]) -> Any:
    return await _watched(work, suspended)


class Suspended:
    """A task that calls `strike` at its suspension number `at`, or from that one on at each.

    `was_struck` is False when the task ended before.
    """

    def __init__(
        self, work: Coroutine[Any, Any, Any], at: int, strike: Callable[[], Any], *, often: bool
    ) -> None:
        self.was_struck = False
        self._at = at
        self._often = often
        self._strike = strike
        self.task = asyncio.ensure_future(_run(work, self._suspended))

    def _suspended(self, count: int) -> None:
        if count == self._at or (self._often and count > self._at):
            self.was_struck = True
            asyncio.get_running_loop().call_soon(self._strike)


def cancelled_at(work: Coroutine[Any, Any, Any], at: int, *, often: bool) -> Suspended:
    """Start work in a task that is cancelled at this suspension."""

    def cancel() -> None:
        begun.task.cancel()

    begun = Suspended(work, at, cancel, often=often)
    return begun
