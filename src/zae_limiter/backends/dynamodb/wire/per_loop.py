"""`PerLoop` keeps one resource for each event loop, such as a connection pool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

_T = TypeVar("_T")


class PerLoop(Generic[_T]):
    """`PerLoop` opens one resource for each event loop that asks, however many tasks ask at once.

    `close` closes the resource, or else its loop does when that ends: a suspended generator
    holds the resource open, and a loop closes its generators before itself.
    """

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[_T]]) -> None:
        self._make = make
        self._held: dict[asyncio.AbstractEventLoop, _Held[_T]] = {}

    def ready(self) -> _T | None:
        """Return the resource of the running loop, if that takes no waiting."""
        held = self._held.get(asyncio.get_running_loop())
        return held.opening.result() if held is not None and held.opening.done() else None

    async def get(self) -> _T:
        """Return the resource of the running loop, and open it first if needed."""
        loop = asyncio.get_running_loop()
        held = self._held.get(loop) or self._open(loop)
        try:
            return await asyncio.shield(held.opening)
        except BaseException:
            if held.opening.done():
                self._held.pop(loop, None)
            raise

    def _open(self, loop: asyncio.AbstractEventLoop) -> _Held[_T]:
        for other in [each for each in self._held if each.is_closed()]:
            self._held.pop(other, None)
        held = self._held[loop] = _Held(self._make)
        return held

    async def close(self) -> None:
        """Close the resource of the running loop, if it has one."""
        held = self._held.pop(asyncio.get_running_loop(), None)
        if held is not None:
            await asyncio.wait((held.opening,))
            await held.keeper.aclose()


class _Held(Generic[_T]):
    def __init__(self, make: Callable[[], AbstractAsyncContextManager[_T]]) -> None:
        self.keeper = _keep(make)
        self.opening: asyncio.Future[_T] = asyncio.ensure_future(_first(self.keeper))


async def _first(keeper: AsyncGenerator[_T, None]) -> _T:
    return await anext(keeper)


async def _keep(make: Callable[[], AbstractAsyncContextManager[_T]]) -> AsyncGenerator[_T, None]:
    async with make() as opened:
        yield opened
