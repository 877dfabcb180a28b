from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from zae_limiter.core.exceptions import ValidationError
from zae_limiter.core.idempotency import planned_at_ms
from zae_limiter.runtime.blocking import BlockingIo, run
from zae_limiter.runtime.parallel import Gather, Threads, choose_gather, greenlets, serial
from zae_limiter.testing import ManualClock


async def answer(value: int) -> int:
    return value


async def fail(error: BaseException) -> int:
    raise error


def test_a_flow_runs_to_its_end_in_one_step() -> None:
    assert run(answer(7)) == 7
    with pytest.raises(ZeroDivisionError):
        run(fail(ZeroDivisionError()))


def test_a_flow_that_suspends_is_refused_and_closed() -> None:
    closed: list[bool] = []

    async def suspends() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            closed.append(True)

    with pytest.raises(RuntimeError, match=r"suspends.*suspended under the blocking driver"):
        run(suspends())
    assert closed == [True]


@pytest.mark.parametrize("gather", [serial, Threads()], ids=["serial", "threads"])
def test_gather_returns_every_outcome_in_order(gather: Gather) -> None:
    errors = [ValueError("1"), KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError()]
    flows: list[Coroutine[Any, Any, int]] = [answer(0), *map(fail, errors), answer(5)]
    assert run(BlockingIo(gather=gather).gather(flows)) == [0, *errors, 5]
    assert run(BlockingIo(gather=gather).gather([])) == []
    assert run(BlockingIo(gather=gather).gather([fail(errors[1])])) == [errors[1]]


def test_gather_runs_flows_in_threads_at_the_same_time() -> None:
    meeting = threading.Barrier(3, timeout=10)

    async def meet(number: int) -> int:
        meeting.wait()
        return number

    assert run(BlockingIo(gather=Threads()).gather([meet(n) for n in range(3)])) == [0, 1, 2]


def test_more_flows_than_threads_all_run() -> None:
    flows = [answer(number) for number in range(50)]
    assert run(BlockingIo(gather=Threads()).gather(flows)) == list(range(50))


def test_a_flow_that_gathers_may_be_gathered() -> None:
    io = BlockingIo(gather=Threads())

    async def nested(depth: int) -> int:
        if depth == 0:
            return 1
        found = await io.gather([nested(depth - 1) for _ in range(3)])
        return sum(number for number in found if isinstance(number, int))

    assert run(nested(4)) == 81


def test_many_threads_may_gather_at_once() -> None:
    io = BlockingIo(gather=Threads())
    sums: list[int] = []

    def work() -> None:
        for _ in range(20):
            found = run(io.gather([answer(number) for number in range(4)]))
            sums.append(sum(number for number in found if isinstance(number, int)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sums == [6] * 160


def test_an_interrupt_of_the_first_call_waits_for_the_other_calls() -> None:
    finished: list[int] = []

    def slow(number: int) -> Callable[[], int]:
        def call() -> int:
            time.sleep(0.02)
            finished.append(number)
            return number

        return call

    def interrupted() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Threads()([interrupted, slow(1), slow(2)])
    assert sorted(finished) == [1, 2]


def test_a_parallel_mode_is_chosen_by_name() -> None:
    assert choose_gather("serial", parallel_helps=True) is serial
    assert choose_gather("auto", parallel_helps=False) is serial
    with pytest.warns(UserWarning, match="monkey-patched"):
        assert choose_gather("gevent", parallel_helps=True) is greenlets
    for mode in ("", "threads", None):
        with pytest.raises(ValidationError) as refused:
            choose_gather(mode, parallel_helps=True)  # type: ignore[arg-type]
        assert refused.value.field == "parallel_mode"


@pytest.mark.parametrize(("cores", "mode"), [(1, serial), (2, None)])
def test_the_automatic_parallel_mode_fits_the_machine(
    cores: int, mode: Gather | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    chosen = choose_gather("auto", parallel_helps=True)
    assert chosen is mode or (mode is None and isinstance(chosen, Threads))
    if cores == 1:
        with pytest.warns(UserWarning, match="single CPU"):
            assert isinstance(choose_gather("threadpool", parallel_helps=True), Threads)
    else:
        assert isinstance(choose_gather("threadpool", parallel_helps=False), Threads)


def test_waiting_moves_a_manual_clock() -> None:
    clock = ManualClock(0)
    io = BlockingIo(clock)
    run(io.sleep(1.5))
    run(io.pause(0.25))
    assert not run(io.signal().wait(2))
    assert clock.now_ms() == io.now_ms() == 3_750


def test_waiting_blocks_on_a_real_clock() -> None:
    io = BlockingIo()
    before = time.monotonic()
    run(io.sleep(0.01))
    assert not run(io.signal().wait(0.01))
    assert time.monotonic() - before >= 0.02
    assert abs(io.now_ms() - time.time() * 1000) < 60_000


def test_offloaded_work_runs_in_the_calling_thread() -> None:
    assert run(BlockingIo().offload(threading.get_ident)) == threading.get_ident()


def test_a_signal_wakes_another_thread() -> None:
    signal = BlockingIo().signal()
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(run(signal.wait(30))))
    thread.start()
    signal.set()
    signal.set()
    thread.join(timeout=10)
    assert woken == [True]
    assert run(signal.wait(0))
    assert run(signal.wait(None))


def test_ids_are_unique_and_tell_their_time() -> None:

    clock = ManualClock(1_704_067_200_123)
    io = BlockingIo(clock)
    ids = {io.operation_id() for _ in range(1_000)}
    assert len(ids) == 1_000
    assert {planned_at_ms(each) for each in ids} == {1_704_067_200_123}
    entropies = [io.entropy() for _ in range(100)]
    assert len(set(entropies)) == 100
    assert all(0 <= each < 1 << 80 for each in entropies)
