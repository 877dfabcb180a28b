from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from zae_limiter.backends.memory import MemoryStore
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.exceptions import StorageUnavailable
from zae_limiter.core.idempotency import planned_at_ms
from zae_limiter.core.writes import Adjust
from zae_limiter.testing.simulation import Cancelled, Client, Faults, Killed, Simulation

HOME = BucketAddress("n", "key", "api")


class Stage:
    """A simulation with one client, and a log that its tasks write."""

    def __init__(self, seed: int = 0, faults: Faults | None = None, ahead_ms: int = 0) -> None:
        self.simulation = Simulation(seed)
        self.store = MemoryStore()
        self.client = self.add(faults or Faults(), ahead_ms)
        self.began_ms = self.simulation.now_ms
        self.log: list[str] = []

    def add(self, faults: Faults | None = None, ahead_ms: int = 0) -> Client:
        return self.simulation.client(self.store, faults or Faults(), ahead_ms=ahead_ms)

    def run(self, *tasks: Coroutine[Any, Any, Any]) -> list[str]:
        for task in tasks:
            self.simulation.spawn(self.client, task)
        self.simulation.run()
        return self.log

    def note(self, text: str) -> None:
        self.log.append(f"{self.simulation.now_ms - self.began_ms} {text}")

    async def sleeper(self, name: str, *naps_ms: int) -> None:
        for nap_ms in naps_ms:
            await self.client.io.sleep(nap_ms / 1000)
            self.note(name)


def test_virtual_time_passes_only_when_no_task_is_ready() -> None:
    stage = Stage()
    assert stage.run(stage.sleeper("a", 5, 10), stage.sleeper("b", 7, 0)) == [
        "5 a",
        "7 b",
        "7 b",
        "15 a",
    ]


def test_virtual_time_jumps_while_tasks_are_ready_if_asked_to() -> None:
    simulation = Simulation(0, jump_ms=5)
    client = simulation.client(MemoryStore())
    began_ms = simulation.now_ms

    async def busy() -> None:
        for _ in range(100):
            await client.io.sleep(0)

    simulation.spawn(client, busy())
    simulation.run()
    assert 5 <= simulation.now_ms - began_ms <= 500


def test_the_seed_decides_the_order_of_tasks() -> None:
    orders = set()
    for seed in range(20):
        stage, again = Stage(seed), Stage(seed)
        order = stage.run(*(stage.sleeper(name, 0, 0) for name in "abc"))
        assert order == again.run(*(again.sleeper(name, 0, 0) for name in "abc"))
        orders.add(tuple(order))
    assert len(orders) > 10


def test_each_client_has_a_clock_and_ids_of_its_own() -> None:
    stage = Stage()
    late = stage.add(ahead_ms=-1500)
    io, now_ms = stage.client.io, stage.simulation.now_ms
    assert (io.now_ms(), late.io.now_ms()) == (now_ms, now_ms - 1500)
    late.io.ahead_ms = 300
    assert planned_at_ms(late.io.operation_id()) == now_ms + 300
    ids = [each.operation_id() for each in (io, late.io) for _ in range(300)]
    assert len(set(ids)) == 600
    assert 0 <= io.entropy() < 1 << 80


def test_simulated_gather_returns_every_outcome_and_cancels_no_flow() -> None:
    stage = Stage()

    async def fail() -> None:
        raise KeyError("lost")

    async def all_of_them() -> None:
        outcomes = await stage.client.io.gather([stage.sleeper("child", 5), fail()])
        stage.note(repr(outcomes))

    assert stage.run(all_of_them()) == ["5 child", "5 [None, KeyError('lost')]"]


def test_offloaded_code_runs_between_the_steps_of_other_tasks() -> None:
    stage = Stage()

    async def work() -> None:
        stage.note(str(await stage.client.io.offload(lambda: 42)))

    assert stage.run(work()) == ["0 42"]


@pytest.mark.parametrize("set_after_ms", [0, 3, 9])
def test_a_signal_wakes_its_waiter_in_time_or_not(set_after_ms: int) -> None:
    stage = Stage()
    signal = stage.client.io.signal()

    async def wait() -> None:
        stage.note(str(await signal.wait(0.005)))

    async def wake() -> None:
        await stage.client.io.sleep(set_after_ms / 1000)
        signal.set()

    expected = {0: "0 True", 3: "3 True", 9: "5 False"}
    assert stage.run(wait(), wake()) == [expected[set_after_ms]]


def test_a_cancellation_is_held_back_until_the_task_may_be_cancelled() -> None:
    stage = Stage()
    io = stage.client.io

    async def pause_and_sleep() -> None:
        try:
            await io.pause(0.01)
            await io.gather([stage.sleeper("child", 5)])
            await stage.client.store.ping()
            stage.note("still here")
            await io.sleep(1)
        except Cancelled:
            stage.note("cancelled")
            await io.sleep(0.001)
            stage.note("cleaned up")
            raise

    async def cancel() -> None:
        await io.sleep(0.002)
        stage.simulation.scheduler.cancel(task)

    task = stage.simulation.spawn(stage.client, pause_and_sleep())
    assert stage.run(cancel()) == [
        "15 child",
        "15 still here",
        "15 cancelled",
        "16 cleaned up",
    ]


def test_a_crash_ends_every_task_of_the_process_and_lets_none_act_again() -> None:
    stage = Stage()
    doomed = stage.add()

    async def body() -> None:
        try:
            await doomed.io.gather([nap(), nap()])
        finally:
            stage.note("fell")
            await doomed.store.buckets.write(HOME, Adjust("op", 0, {}, 0))

    async def nap() -> None:
        try:
            await doomed.io.sleep(1)
        except Killed:
            await doomed.io.pause(1)

    async def crash() -> None:
        await stage.client.io.sleep(0.004)
        stage.simulation.crash(doomed)
        await stage.client.io.sleep(2)
        stage.note("over")

    stage.simulation.spawn(doomed, body())
    assert stage.run(crash()) == ["4 fell", "2004 over"]


def test_the_error_of_a_task_ends_the_run_and_leaves_nothing_behind() -> None:
    stage = Stage()

    async def fail() -> None:
        await stage.client.io.sleep(0.003)
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        stage.run(stage.sleeper("a", 1, 9), fail())
    assert stage.log == ["1 a"]


def test_tasks_that_wait_for_each_other_are_reported() -> None:
    stage = Stage()
    scheduler = stage.simulation.scheduler

    async def wait_for_itself() -> None:
        assert scheduler.current is not None
        await scheduler.join(scheduler.current)

    with pytest.raises(RuntimeError, match="wait for each other"):
        stage.run(wait_for_itself())


async def outcome_of_a_call(client: Client) -> str:
    try:
        await client.store.ping()
    except StorageUnavailable as error:
        return f"{error} {error.retryable} {error.ambiguous}"
    return "answered"


@pytest.mark.parametrize(
    ("faults", "expected", "arrived"),
    [
        (Faults(), "answered", 1),
        (Faults(lost_requests=1), "the request was lost True False", 0),
        (Faults(lost_answers=1), "the answer was lost True True", 1),
        (Faults(late_requests=1), "no answer in time True True", 1),
    ],
)
def test_a_call_goes_wrong_as_its_fault_says(faults: Faults, expected: str, arrived: int) -> None:
    stage = Stage(faults=faults)
    arrivals: list[int] = []

    async def ping() -> None:
        arrivals.append(stage.simulation.now_ms)

    stage.store.ping = ping  # type: ignore[method-assign]

    async def call() -> None:
        stage.note(await outcome_of_a_call(stage.client))

    assert stage.run(call()) == [f"0 {expected}"]
    assert len(arrivals) == arrived


def test_a_simulated_call_is_delayed_both_ways() -> None:
    durations_ms = set()
    for seed in range(50):
        stage = Stage(seed, Faults(max_delay_ms=10))

        async def call(stage: Stage = stage) -> None:
            stage.note(await outcome_of_a_call(stage.client))

        durations_ms.add(int(stage.run(call())[0].split()[0]))
    assert min(durations_ms) < 5
    assert max(durations_ms) > 15


def test_no_call_gets_through_a_line_that_is_cut() -> None:
    stage = Stage()
    line = stage.client.line

    async def call() -> None:
        line.is_cut = True
        stage.note(await outcome_of_a_call(stage.client))
        line.is_cut = False
        stage.note(await outcome_of_a_call(stage.client))

    assert stage.run(call()) == ["0 the request was lost True False", "0 answered"]
