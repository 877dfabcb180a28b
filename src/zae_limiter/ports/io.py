"""What flows may ask of the world. Each driver answers in its own way.

A flow is an `async def` that awaits nothing but these methods and those of a repository.
Under asyncio they suspend; under the blocking driver they block; under the simulator
they hand over to its scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Signal(Protocol):
    """Wakes one waiting flow, once. It may be set before it is waited for."""

    def set(self) -> bool:
        """Wake the waiter. Safe to call from any thread, and more than once. False when it can
        no longer be woken, because its event loop is closed."""

    async def wait(self, seconds: float | None) -> bool:
        """Wait until set, at most this long by the clock; None waits however long it takes.
        True when it was set. May be cancelled."""

    async def hold(self) -> None:
        """Wait until set. A cancellation is held back until then."""


class Io(Protocol):
    """The world, as a flow sees it."""

    def now_ms(self) -> int:
        """The time, in milliseconds since the epoch."""

    def correct(self, offset_ms: int) -> None:
        """The store's clock is ahead of ours by this much: go by the store's."""

    def operation_id(self) -> str:
        """A new id that no other client ever makes (`core.operations`)."""

    def entropy(self) -> int:
        """80 random bits."""

    def signal(self) -> Signal:
        """A new signal."""

    async def sleep(self, seconds: float) -> None:
        """Wait. May be cancelled."""

    async def pause(self, seconds: float) -> None:
        """Wait before a retry. A cancellation is held back until the flow next sleeps."""

    async def offload(self, call: Callable[[], T]) -> T:
        """Run code that may block, where it does no harm.

        Once begun it is never abandoned: a cancellation is held back until the call has
        returned, so that its outcome is always known.
        """

    async def gather(self, flows: Sequence[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
        """Run all, return every outcome in order, cancel nobody."""

    async def close(self) -> None:
        """Let go of threads. The driver can be used again afterwards."""
