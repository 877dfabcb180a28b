"""Waiters are served in the order in which they came, and in time or not at all."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from zae_limiter import Entity, Limit, RateLimitExceeded
from zae_limiter.backends.memory import MemoryStore
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.writes import Outcome, Write
from zae_limiter.flows.acquire.lease import end_lease, open_lease
from zae_limiter.flows.acquire.lease_record import LeaseTerms
from zae_limiter.flows.acquire.request import make_request
from zae_limiter.flows.acquire.wait_queue import Place, WaitQueues
from zae_limiter.flows.admin import entities
from zae_limiter.flows.admin import limits as stored_limits
from zae_limiter.flows.scope import LocalState, Scope, Settings
from zae_limiter.runtime.blocking import run
from zae_limiter.runtime.simulated_scheduler import Task
from zae_limiter.testing.simulation import Faults, Simulation

SEEDS = 200
AMPLE_MS = 60_000


class WatchedWaitQueues(WaitQueues):
    """Watched wait queues note in which order places join."""

    def __init__(self, note: Callable[[], None]) -> None:
        super().__init__()
        self._note = note

    def join(self, place: Place) -> bool:
        self._note()
        return super().join(place)


class Queue:
    """A queue of tasks of one client that all want the same amount of one bucket."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        delay_ms, jump_ms = self.rng.choice(((0, 0), (0, 0), (7, 3), (60, 0)))
        self.is_prompt = not delay_ms and not jump_ms
        self.simulation = Simulation(seed, jump_ms=jump_ms)
        self.client = self.simulation.client(MemoryStore(), Faults(max_delay_ms=delay_ms))
        self.scope = Scope(
            self.client.store,
            self.client.io,
            "n",
            local=LocalState(
                wait_queues=WatchedWaitQueues(lambda: self.joined.append(self._current()))
            ),
            settings=Settings(coalesces=self.rng.random() < 0.5),
        )
        self.limits = [Limit.per_second("rps", self.rng.randint(1, 3), burst=2)]
        self.amount = self.rng.randint(1, 2)
        self.joined: list[Task] = []
        self.served: list[Task] = []

    def _current(self) -> Task:
        assert self.simulation.scheduler.current is not None
        return self.simulation.scheduler.current

    def run(self, timeouts_ms: list[int]) -> None:
        for timeout_ms in timeouts_ms:
            self.simulation.spawn(self.client, self._wait(timeout_ms))
        self.simulation.run()

    async def _wait(self, timeout_ms: int) -> None:
        await self.client.io.sleep(self.rng.randint(0, 1500) / 1000)
        request = make_request("key", "api", {"rps": self.amount}, self.limits)
        began_ms = self.simulation.now_ms
        try:
            lease = await open_lease(self.scope, request, LeaseTerms(timeout=timeout_ms / 1000))
        except RateLimitExceeded:
            return
        finally:
            waited_ms = self.simulation.now_ms - began_ms
            assert waited_ms <= timeout_ms or not self.is_prompt
        self.served.append(self._current())
        await self.client.io.sleep(self.rng.randint(0, 500) / 1000)
        await end_lease(lease, failed=self.rng.random() < 0.3)


def check_order() -> None:
    waiters = 0
    for seed in range(SEEDS):
        queue = Queue(seed)
        queue.run([AMPLE_MS] * 6)
        assert len(queue.served) == 6
        waited = [task for task in queue.served if task in queue.joined]
        assert waited == queue.joined, f"seed {seed}"
        waiters += len(waited)
    assert waiters > 2 * SEEDS


def test_waiters_are_served_in_the_order_in_which_they_came() -> None:
    check_order()


def test_no_waiter_waits_longer_than_its_timeout() -> None:
    served = 0
    for seed in range(SEEDS):
        queue = Queue(seed)
        queue.run([queue.rng.randint(0, 2000) for _ in range(6)])
        served += len(queue.served)
    assert SEEDS < served < 5 * SEEDS


def test_the_simulation_detects_a_queue_that_serves_the_last_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    join = WaitQueues.join

    def join_in_front(queues: WaitQueues, place: Place) -> bool:
        is_behind = join(queues, place)
        queues._queues[place.address].places.move_to_end(id(place), last=False)
        return is_behind and False

    monkeypatch.setattr(WaitQueues, "join", join_in_front)
    with pytest.raises(AssertionError):
        check_order()


@pytest.mark.parametrize("delay_ms", [0, 5])
@pytest.mark.parametrize("seed", range(5))
def test_waiters_at_different_levels_do_not_wake_each_other_endlessly(
    seed: int, delay_ms: int
) -> None:
    """A waiter waits for its own bucket and another for the parent's. The charges and refunds of
    each at the other's level must not make the other try again."""
    store, simulation = MemoryStore(), Simulation(seed)
    client = simulation.client(store, Faults(max_delay_ms=delay_ms))
    setup, scope = Scope(store, client.io, "n"), Scope(client.store, client.io, "n")
    rates = {"child": (10, 1000), "parent": (1000, 10)}
    for entity_id, (x, y) in rates.items():
        parent_id = "parent" if entity_id == "child" else None
        entity = Entity(entity_id, parent_id=parent_id, cascade=parent_id is not None)
        run(entities.create_entity(setup, entity, None))
        limits = [Limit("x", x, 1, 10), Limit("y", y, 1, 10)]
        run(stored_limits.set_limits(setup, stored_limits.entity_slot(entity_id, "api"), limits))

    async def take(amounts: dict[str, int], timeout: float | None) -> None:
        request = make_request("child", "api", amounts)
        await end_lease(await open_lease(scope, request, LeaseTerms(timeout)), failed=False)

    async def story() -> None:
        await take({"x": 7, "y": 9}, None)
        for amounts in ({"x": 1, "y": 2}, {"x": 4, "y": 1}):
            simulation.spawn(client, take(amounts, 40))

    writes = count_writes(store)
    simulation.spawn(client, story())
    simulation.run()
    assert len(writes) < 30


def count_writes(store: MemoryStore) -> list[Write]:
    """All writes that come to a store from now on."""
    writes: list[Write] = []
    carry_out = store.buckets.write

    async def write(address: BucketAddress, write: Write) -> Outcome:
        writes.append(write)
        return await carry_out(address, write)

    store.buckets.write = write  # type: ignore[method-assign]
    return writes


@pytest.mark.parametrize("seed", range(20))
def test_waiting_for_retry_after_is_enough_and_a_millisecond_less_is_not(seed: int) -> None:
    rng = Random(seed)
    simulation = Simulation(seed)
    client = simulation.client(MemoryStore())
    scope = Scope(client.store, client.io, "n")
    limits = [Limit("rps", rng.randint(1, 9), rng.randint(1, 9), rng.choice((1, 7, 60)))]
    request = make_request("key", "api", {"rps": rng.randint(1, limits[0].capacity)}, limits)

    async def take(timeout: float | None) -> None:
        await end_lease(await open_lease(scope, request, LeaseTerms(timeout)), failed=False)

    async def story() -> None:
        error = None
        while error is None:
            await client.io.sleep(rng.randint(0, 300) / 1000)
            try:
                await take(None)
            except RateLimitExceeded as refusal:
                error = refusal
        told_s, began_ms = error.retry_after_seconds, simulation.now_ms
        with pytest.raises(RateLimitExceeded):
            await take(told_s - 0.001)
        assert simulation.now_ms == began_ms
        await take(told_s)
        assert simulation.now_ms - began_ms == round(told_s * 1000)

    simulation.spawn(client, story())
    simulation.run()
