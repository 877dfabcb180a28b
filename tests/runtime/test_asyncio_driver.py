from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from zae_limiter.runtime.asyncio_driver import AsyncioIo, drive, hold, in_time
from zae_limiter.testing import ManualClock


async def answer(value: int, after_s: float = 0) -> int:
    await asyncio.sleep(after_s)
    return value


async def fail(error: BaseException) -> int:
    await asyncio.sleep(0)
    raise error


async def held(flow: Coroutine[Any, Any, Any]) -> Any:
    return await hold(asyncio.ensure_future(flow))


async def test_held_work_ends_though_its_waiter_is_cancelled() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(0.02)
        finally:
            ended.append("work")

    async def waiter() -> None:
        await held(work())
        ended.append("still running")
        await asyncio.sleep(0)
        ended.append("never")

    task = asyncio.create_task(waiter())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel("enough")
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await task
    assert ended == ["work", "still running"]
    assert cancelled.value.args == ("enough",)


async def test_any_number_of_cancellations_is_held() -> None:
    task = asyncio.create_task(drive(held(answer(1, 0.02))))
    cancellations = 0
    while not task.done():
        await asyncio.sleep(0)
        cancellations += task.cancel()
    assert task.cancelled()
    assert cancellations > 1


async def test_an_error_of_held_work_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        await held(fail(ZeroDivisionError()))


async def test_a_timeout_that_was_held_back_is_a_timeout() -> None:
    done: list[int] = []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.005):
            done.append(await drive(held(answer(1, 0.02))))
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)
    assert done == []


async def test_a_timeout_that_was_held_back_beats_an_error() -> None:
    async def slow_failure() -> None:
        await asyncio.sleep(0.02)
        raise ZeroDivisionError

    with pytest.raises(TimeoutError) as raised:
        async with asyncio.timeout(0.005):
            await drive(held(slow_failure()))
    cancellation = raised.value.__cause__
    assert isinstance(cancellation, asyncio.CancelledError)
    assert isinstance(cancellation.__context__, ZeroDivisionError)
    await asyncio.sleep(0)


async def test_only_the_timeout_that_expired_is_raised() -> None:
    async with asyncio.timeout(5) as outer:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.005):
                await drive(held(answer(1, 0.02)))
        await asyncio.sleep(0)
    assert not outer.expired()


async def test_the_result_of_a_cancelled_drive_is_undone() -> None:
    undone: list[int] = []

    async def undo(value: int) -> None:
        await asyncio.sleep(0)
        undone.append(value)

    assert await drive(answer(1), undo) == 1
    task = asyncio.create_task(drive(held(answer(2, 0.01)), undo))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert undone == [2]


async def test_a_flow_in_a_task_that_handles_its_cancellation_runs_as_usual() -> None:
    async def work() -> int:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return int(await drive(held(answer(7))))
        return 0

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == 7


async def test_a_pause_is_held_and_a_sleep_is_not() -> None:
    io = AsyncioIo()
    for wait, ended in ((io.pause, True), (io.sleep, False)):
        finished: list[bool] = []

        async def work(
            wait: Callable[[float], Any] = wait, finished: list[bool] = finished
        ) -> None:
            await wait(0.02)
            finished.append(True)

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert bool(finished) is ended


async def test_offloaded_work_leaves_the_event_loop_free() -> None:
    io = AsyncioIo()
    release, ticks = threading.Event(), 0
    task = asyncio.ensure_future(io.offload(lambda: (release.wait(10), threading.get_ident())))
    while ticks < 20:
        await asyncio.sleep(0)
        ticks += 1
    assert not task.done()
    release.set()
    waited, ident = await task
    assert waited
    assert ident != threading.get_ident()
    await io.close()


async def test_offloaded_work_is_never_abandoned() -> None:
    io = AsyncioIo()
    release, done = threading.Event(), threading.Event()

    def work() -> int:
        release.wait(10)
        done.set()
        return 5

    task = asyncio.ensure_future(io.offload(work))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done()
    release.set()
    await asyncio.wait([task])
    assert done.is_set()
    await io.close()


async def test_an_error_of_offloaded_work_is_raised() -> None:
    io = AsyncioIo()
    with pytest.raises(ZeroDivisionError):
        await io.offload(lambda: 1 // 0)
    await io.close()


async def test_a_closed_driver_can_be_used_again() -> None:
    io = AsyncioIo()
    first = await io.offload(threading.current_thread)
    await io.close()
    await io.close()
    second = await io.offload(threading.current_thread)
    assert first is not second
    await io.close()
    second.join(timeout=10)
    assert not second.is_alive()


@pytest.mark.parametrize("parallel_helps", [True, False])
async def test_gather_returns_every_outcome_in_order(parallel_helps: bool) -> None:
    io = AsyncioIo(parallel_helps=parallel_helps)
    errors = [ValueError("1"), asyncio.CancelledError()]
    flows = [answer(0, 0.01), *map(fail, errors), answer(5)]
    assert await io.gather(flows) == [0, *errors, 5]
    assert await io.gather([]) == []
    assert await io.gather([fail(errors[0])]) == [errors[0]]


async def test_gather_runs_at_the_same_time_where_that_helps() -> None:
    meeting = asyncio.Barrier(3)

    async def meet(number: int) -> int:
        async with asyncio.timeout(10), meeting:
            return number

    assert await AsyncioIo().gather([meet(number) for number in range(3)]) == [0, 1, 2]


async def test_gather_cancels_no_flow() -> None:
    ended: list[int] = []

    async def work(number: int) -> int:
        await asyncio.sleep(0.02)
        ended.append(number)
        return number

    task = asyncio.create_task(drive(AsyncioIo().gather([work(1), work(2)])))
    await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert sorted(ended) == [1, 2]


async def test_a_signal_may_be_set_before_it_is_waited_for() -> None:
    signal = AsyncioIo().signal()
    signal.set()
    signal.set()
    assert await signal.wait(10)
    assert await signal.wait(0)


async def test_a_signal_that_is_not_set_is_waited_for_in_vain() -> None:
    before = time.monotonic()
    assert not await AsyncioIo().signal().wait(0.01)
    assert time.monotonic() - before >= 0.009


async def test_a_signal_is_set_from_another_thread() -> None:
    signal = AsyncioIo().signal()
    thread = threading.Thread(target=signal.set)
    waiter = asyncio.ensure_future(signal.wait(10))
    await asyncio.sleep(0)
    thread.start()
    assert await waiter
    thread.join()


async def test_a_signal_is_set_from_another_event_loop() -> None:
    signal = AsyncioIo().signal()

    async def wake() -> None:
        signal.set()

    thread = threading.Thread(target=lambda: asyncio.run(wake()))
    thread.start()
    assert await signal.wait(10)
    thread.join()


def test_setting_a_signal_of_a_closed_event_loop_returns_false() -> None:
    async def make() -> Any:
        return AsyncioIo().signal()

    asyncio.run(make()).set()


async def test_waiting_for_a_signal_can_be_cancelled() -> None:
    task = asyncio.create_task(AsyncioIo().signal().wait(60))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_waiting_moves_a_manual_clock_and_lets_other_tasks_run() -> None:
    clock = ManualClock(0)
    io = AsyncioIo(clock)
    await io.sleep(1.5)
    await io.pause(0.25)
    signal = io.signal()
    assert not await signal.wait(2)
    assert clock.now_ms() == 3_750
    signal.set()
    await asyncio.sleep(0)
    assert await signal.wait(5)
    assert clock.now_ms() == 3_750


async def test_an_answer_that_comes_too_late_counts_as_false() -> None:
    async def yes(after_s: float) -> bool:
        await asyncio.sleep(after_s)
        return True

    assert await in_time(yes(0), 10)
    slow = asyncio.create_task(in_time(yes(0.05), 0.005))
    assert not await slow
    await asyncio.sleep(0.06)


def test_without_asyncio_a_message_says_what_is_supported() -> None:
    with pytest.raises(RuntimeError, match="need asyncio, uvloop or anyio"):
        drive(answer(1)).send(None)
