"""This module is the port through which flows reach the world; each driver answers in its own way.

A flow is an `async def` that awaits nothing but these methods and those of a store. Under asyncio
they suspend; under the blocking driver they block; under the simulator they hand over to its
scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Signal(Protocol):
    """A signal wakes one waiting flow, once. It may be set before the flow waits for it."""

    def set(self) -> bool:
        """Wake the waiting flow. Any thread may call this, and more than once. Returns False when
        the flow can no longer be woken, because its event loop is closed."""

    async def wait(self, seconds: float | None, *, for_store: bool = False) -> bool:
        """Wait until the signal is set, at most this long by the clock; None waits without a limit.
        Returns whether it was set. The wait may be cancelled.

        `for_store`: wait in real time, as stores do, also where tests move the clock by hand.
        """

    async def hold(self) -> None:
        """Wait until the signal is set. A cancellation is held back until then."""


class Io(Protocol):
    """An `Io` is the world as a flow sees it: time, ids, randomness, waiting and parallel calls."""

    def now_ms(self) -> int:
        """Return the time, in milliseconds since the epoch."""

    @property
    def unsure_ms(self) -> int:
        """By how much the store's clock may be ahead of `now_ms`, as far as this client knows."""

    def correct(self, offset_ms: int, unsure_ms: int = 0) -> None:
        """Go by the store's clock, which is ahead of this client's by this much, and perhaps by
        `unsure_ms` more. From then on, time passes as the monotonic clock says: steps of the
        system clock do not count."""

    def operation_id(self) -> str:
        """Return a new operation id, which no other client ever makes (`core.idempotency`)."""

    def entropy(self) -> int:
        """Return 80 random bits."""

    def signal(self) -> Signal:
        """Return a new signal."""

    async def sleep(self, seconds: float) -> None:
        """Wait. The wait may be cancelled."""

    async def pause(self, seconds: float) -> None:
        """Wait before a retry. A cancellation is held back until the flow next sleeps."""

    async def offload(self, call: Callable[[], T]) -> T:
        """Run a call that may block, in a place where it blocks no other flow.

        A call that has begun is never abandoned: a cancellation is held back until the call has
        returned, so that its outcome is always known.
        """

    async def shield(self, flow: Coroutine[Any, Any, T], *, shared: bool = False) -> T:
        """Run a flow to its end: a cancellation is held back wherever the flow waits, and is
        delivered afterwards.

        `shared`: other callers depend on the flow. Then an interrupt that cannot be held back,
        such as Ctrl-C in the main thread, must not reach it either.
        """

    async def within(
        self, flow: Coroutine[Any, Any, T], seconds: float, patience_s: float | None = None
    ) -> T:
        """Run a flow whose store calls end within so many seconds, with an answer or an error.

        `patience_s`: the time that calls of this kind have when they begin, if it is not the same.
        """

    def left_s(self) -> float:
        """Return the seconds that the call has left; infinite if it has no deadline."""

    def patience_s(self) -> float:
        """Return the seconds that the call had when it began; infinite if it has no deadline."""

    async def offload_aside(self, call: Callable[[], T]) -> T:
        """Run a call that answers a question about many records, as `offload` does, but in a place
        where calls of `offload` do not wait for it."""

    async def gather(self, flows: Sequence[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
        """Run all flows, return every outcome in order, and cancel none of them."""

    async def close(self) -> None:
        """End the driver's threads. The driver can be used again afterwards."""
