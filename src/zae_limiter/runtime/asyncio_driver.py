"""The asyncio driver awaits flows; nothing here blocks the event loop."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from ..ports.clock import Clock
from .system_clock import ClockedIo

T = TypeVar("T")
_shielded: ContextVar[bool] = ContextVar("zae_limiter_shielded", default=False)


def is_shielded() -> bool:
    """Tell whether the running flow must not be cancelled (`Io.shield`)."""
    return _shielded.get()


async def hold(future: asyncio.Future[T]) -> T:
    """Await a future to its end. A cancellation that arrives meanwhile is delivered afterwards, so
    that a store call that has begun always has a known outcome."""
    # Counted, not kept: a cancel scope of anyio cancels again in each turn of the event loop.
    held: Counter[tuple[Any, ...]] = Counter()
    while not future.done():
        try:
            await _end_of(future)
        except asyncio.CancelledError as cancellation:
            held[cancellation.args] += 1
            _current_task().uncancel()
    for arguments in held.elements():
        _current_task().cancel(*arguments)
    return future.result()


async def _end_of(future: asyncio.Future[Any]) -> None:
    """Await the end of a future that lives on if the one who waits is cancelled."""
    end: asyncio.Future[None] = future.get_loop().create_future()

    def tell(_: asyncio.Future[Any]) -> None:
        _set(end)

    future.add_done_callback(tell)
    try:
        await end
    finally:
        future.remove_done_callback(tell)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def drive(
    flow: Coroutine[Any, Any, T], undo: Callable[[T], Coroutine[Any, Any, None]] | None = None
) -> T:
    """Await a flow, then deliver the cancellation that it held back, if any.

    A held cancellation must not outlive this call: a timeout whose block ends without suspending
    again would miss it, and some later await would raise it. Suspending raises a cancellation that
    is due. `undo` gives back the result of a flow whose caller is cancelled.
    """
    _require_asyncio(flow)
    try:
        result = await flow
    except GeneratorExit:
        # The coroutine is discarded, maybe without a task or a loop: asking for either would fail.
        raise
    except BaseException:
        if _current_task().cancelling():
            await asyncio.sleep(0)
        raise
    if _current_task().cancelling():
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if undo is not None:
                await undo(result)
                # A cancellation that was held back meanwhile is the one that is raised here.
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            raise
    return result


def _require_asyncio(flow: Coroutine[Any, Any, Any]) -> None:
    """Say what is supported to a program that runs under another library, such as trio."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        flow.close()
        raise RuntimeError(
            "no asyncio event loop is running: the async classes need asyncio, uvloop or anyio's"
            " asyncio backend; under trio use SyncRepository and SyncRateLimiter in a worker"
            " thread (trio.to_thread.run_sync)"
        ) from None


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


class _AsyncioSignal:
    def __init__(self, clock: Clock) -> None:
        self._loop = asyncio.get_running_loop()
        # A plain future: a loop that shuts down cancels every task, and one that waits here for
        # a refund would give it up.
        self._is_set: asyncio.Future[None] = self._loop.create_future()
        self._clock = clock

    def set(self) -> bool:
        # The waker may be a thread, or a task of another event loop: to set the future alone
        # would not wake the loop that waits.
        try:
            self._loop.call_soon_threadsafe(_set, self._is_set)
        except RuntimeError:
            return False
        return True

    async def wait(self, seconds: float | None, *, for_store: bool = False) -> bool:
        if self._is_set.done():
            return True
        if seconds is None:
            await (hold(self._is_set) if is_shielded() else _end_of(self._is_set))
            return True
        if not for_store and self._clock.pass_time(seconds):
            await asyncio.sleep(0)
            return self._is_set.done()
        try:
            async with asyncio.timeout(seconds):
                await _end_of(self._is_set)
        except TimeoutError:
            return False
        return True

    async def hold(self) -> None:
        await hold(self._is_set)


class _Worker:
    """A worker is one thread, made when it is first used. One thread is enough for one connection
    of a store. An executor would take twice the time to hand a call over and its result back."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call | None] | None = None
        self._pid = 0

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call in the thread."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        self._current().put((loop, result, call))
        return await hold(result)

    def close(self) -> None:
        """End the thread after the calls under way. It is made anew if it is used again."""
        calls, self._calls = self._calls, None
        if calls is not None and self._pid == os.getpid():
            calls.put(None)

    def _current(self) -> SimpleQueue[_Call | None]:
        """Return the queue of the thread, made anew after a fork, which threads do not survive."""
        if self._calls is None or self._pid != os.getpid():
            self._calls = calls = SimpleQueue[_Call | None]()
            self._pid = os.getpid()
            Thread(target=_work, args=(calls,), name="zae-limiter", daemon=True).start()
            # A driver that is never closed must not leave its thread behind.
            weakref.finalize(self, calls.put, None)
        return self._calls


_Call = tuple[asyncio.AbstractEventLoop, asyncio.Future[Any], Callable[[], Any]]


def _work(calls: SimpleQueue[_Call | None]) -> None:
    """Carry out calls, one after the other, until there is a None."""
    while (item := calls.get()) is not None:
        loop, future, call = item
        try:
            settle = partial(_settle, future, call(), None)
        except BaseException as error:
            settle = partial(_settle, future, None, error)
        # The loop is closed when its caller is gone: nobody waits for the result.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle)
        # Without this, the last call would keep its objects alive until the next one.
        del item, loop, future, call, settle


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


class AsyncioIo(ClockedIo):
    """`AsyncioIo` is the `Io` of asyncio. It holds nothing that belongs to one event loop."""

    def __init__(self, clock: Clock | None = None, *, parallel_helps: bool = True) -> None:
        super().__init__(clock)
        self._parallel_helps = parallel_helps
        self._worker = _Worker()
        self._worker_aside = _Worker()

    def signal(self) -> _AsyncioSignal:
        return _AsyncioSignal(self._clock)

    async def sleep(self, seconds: float) -> None:
        if not self._clock.pass_time(seconds):
            await asyncio.sleep(seconds)

    async def pause(self, seconds: float) -> None:
        if not self._clock.pass_time(seconds):
            loop = asyncio.get_running_loop()
            over: asyncio.Future[None] = loop.create_future()
            loop.call_later(seconds, _set, over)
            await hold(over)

    async def offload(self, call: Callable[[], T]) -> T:
        return await self._worker.run(call)

    async def offload_aside(self, call: Callable[[], T]) -> T:
        return await self._worker_aside.run(call)

    async def shield(self, flow: Coroutine[Any, Any, T], *, shared: bool = False) -> T:
        before = _shielded.get()
        _shielded.set(True)
        try:
            return await flow
        finally:
            # Not by a token: a generator may be closed in another context.
            _shielded.set(before)

    async def gather(self, flows: Sequence[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
        if not self._parallel_helps or len(flows) < 2:
            return [await _outcome(flow) for flow in flows]
        tasks = [asyncio.ensure_future(_outcome(flow)) for flow in flows]
        return [await hold(task) for task in tasks]

    async def close(self) -> None:
        """End the worker threads, if there are any."""
        self._worker.close()
        self._worker_aside.close()


async def _outcome(flow: Coroutine[Any, Any, T]) -> T | BaseException:
    try:
        return await flow
    except BaseException as error:
        return error


async def in_time(flow: Coroutine[Any, Any, bool], seconds: float) -> bool:
    """Return the flow's answer, or False when it does not come in time."""
    task = asyncio.ensure_future(flow)
    done, _ = await asyncio.wait((task,), timeout=seconds)
    return task.result() if done else False
