"""Writes wait for each other in a process that is interrupted, forks or has two event loops."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.crowd import crowd, in_line, take, until
from tests.support.rush import LIMIT, SAVED
from tests.support.sqlite import fork, join
from zae_limiter import Limit, RateLimiter, Repository
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.writes import Outcome, Write
from zae_limiter.flows.acquire.wait_queue import Place
from zae_limiter.testing import Event, assert_window_theorem

ROOT = Path(__file__).parents[2]
RPM = Limit.per_minute("rpm", 6000)


def start(module: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def interrupted(url: str, role: str) -> dict[str, Any]:
    """Return the outcomes of a process that was interrupted once, at the right moment."""
    process = start("tests.support.interrupted", url, role)
    assert process.stdout is not None
    said = process.stdout.readline()
    assert said == "ready\n", process.communicate()
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate("go on\n", timeout=60)
    assert process.returncode == 0, errors
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("waiting", {"other-0": "served", "other-1": "served", "left": 996, "acquires": 5}),
        (
            "follower",
            {"second": "served", "other-0": "served", "left": 996, "acquires": 5},
        ),
        ("refund", {"other-0": "served", "other-1": "served", "left": 996, "acquires": 5}),
        ("leader", {"other-0": "served", "other-1": "served", "left": 996, "acquires": 5}),
    ],
)
def test_control_c_interrupts_only_the_main_thread(
    tmp_path: Path, role: str, expected: dict[str, Any]
) -> None:
    """The write of a leader goes on for its followers, and the leader's own part is given back."""
    common = {"first": "served", "main": "interrupted", "after": "served"}
    assert interrupted(f"sqlite:///{tmp_path / 'limits.db'}", role) == {**common, **expected}


async def test_the_child_of_a_fork_does_not_wait_for_its_parent_s_write(tmp_path: Path) -> None:
    async with crowd("blocking", f"sqlite:///{tmp_path / 'limits.db'}", [RPM]) as it:
        await take(it.limiter, rpm=0)
        first = await it.at_gate(take(it.limiter, rpm=1))
        others = await it.behind(*(take(it.limiter, rpm=1) for _ in range(3)))

        def work() -> None:
            signal.alarm(20)
            it.buckets.gate.open()
            for _ in range(5):
                assert _blocking(take(it.limiter, rpm=10))

        assert join(fork(work)) == [0]
        it.buckets.gate.open()
        assert all(await asyncio.gather(first, *others))
        assert (await it.bucket()).cells["rpm"].consumed_milli == 54_000


def _blocking(work: Any) -> Any:
    with pytest.raises(StopIteration) as ended:
        work.send(None)
    return ended.value.value


async def test_the_child_of_a_fork_does_not_queue_behind_its_parent_s_waiters(
    tmp_path: Path,
) -> None:
    async with crowd("blocking", f"sqlite:///{tmp_path / 'limits.db'}", [RPM]) as it:
        await take(it.limiter, rpm=0)
        ghost = Place(it.home(), {"rpm": 1000}, it.scope.io.signal())
        it.scope.local.wait_queues.join(ghost)
        start_ms = it.clock.now_ms()

        async def patient() -> None:
            async with it.limiter.acquire("key-1", "gpt-4", {"rpm": 1}, timeout=60):
                assert it.clock.now_ms() == start_ms

        assert join(fork(lambda: _blocking(patient()))) == [0]
        it.scope.local.wait_queues.leave(ghost)


FORKING = """
import signal, sys, threading
from tests.support.sqlite import fork, join
from zae_limiter import Limit, SyncRateLimiter, SyncRepository

repository = SyncRepository.open(url=sys.argv[1])
limiter = SyncRateLimiter(repository, default_limits=[Limit.per_day("rpm", 1_000_000)])
done = threading.Event()

def take():
    with limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
        lease.adjust(rpm=1)

def hammer():
    while not done.is_set():
        take()

def child():
    signal.alarm(20)
    for _ in range(3):
        take()

threads = [threading.Thread(target=hammer) for _ in range(4)]
for thread in threads:
    thread.start()
exits = [join(fork(child))[0] for _ in range(30)]
done.set()
for thread in threads:
    thread.join()
assert exits == [0] * 30, exits
"""


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_forks_among_busy_threads_find_no_lock_that_stays_held(tmp_path: Path, kind: str) -> None:
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path / 'limits.db'}"
    finished = subprocess.run(
        [sys.executable, "-c", FORKING, url],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (finished.returncode, finished.stderr) == (0, "")


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_event_loops_of_several_threads_share_writes(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path / 'limits.db'}"
    async with await Repository.open(url=url) as repository:
        limiter = RateLimiter(repository, default_limits=[Limit.per_day("rpm", 10_000)])
        await take(limiter, rpm=0)
        loops: set[int] = set()
        queues = repository.scope.local.write_queues
        shared = queues.form_batch

        def form_batch(address: BucketAddress, batch: list[Any]) -> None:
            shared(address, batch)
            found = {id(ticket.signal._loop) for ticket in batch}
            loops.update(found - {id(asyncio.get_running_loop())})

        monkeypatch.setattr(queues, "form_batch", form_batch)
        all_are_here = threading.Event()
        write = repository.scope.store.buckets.write

        async def write_then(address: BucketAddress, planned: Write) -> Outcome:
            await asyncio.to_thread(all_are_here.wait)
            return await write(address, planned)

        monkeypatch.setattr(repository.scope.store.buckets, "write", write_then)

        async def hammer() -> None:
            await asyncio.gather(*(_take_often(limiter) for _ in range(10)))

        threads = [threading.Thread(target=asyncio.run, args=(hammer(),)) for _ in range(3)]
        for thread in threads:
            thread.start()
        here = asyncio.ensure_future(hammer())
        home = BucketAddress(repository.namespace_id, "key-1", "gpt-4")
        await until(lambda: in_line(repository.scope, home) == 39)
        all_are_here.set()
        await here
        await until(lambda: not any(thread.is_alive() for thread in threads))
        state = await repository.get_bucket("key-1", "gpt-4", "rpm")
        assert state is not None
        assert state.total_consumed_milli == 4 * 10 * 20 * 1000
        assert not repository.scope.local.write_queues._owners
        assert loops, "no flight had riders of another loop"


async def _take_often(limiter: RateLimiter) -> None:
    for _ in range(20):
        assert await take(limiter, rpm=1)


async def test_a_leader_whose_event_loop_was_closed_is_passed_over() -> None:
    async with crowd("asyncio", "memory://", [RPM]) as it:
        await take(it.limiter, rpm=0)
        first = await it.at_gate(take(it.limiter, rpm=1))
        abandon_in_line(it.limiter, lambda: it.in_line() == 1)
        others = await it.behind(*(take(it.limiter, rpm=1) for _ in range(2)))
        it.buckets.gate.open()
        assert all(await asyncio.gather(first, *others))
        assert (await it.bucket()).acquires == 4
        gc.collect()
        assert await take(it.limiter, rpm=1)


def abandon_in_line(limiter: RateLimiter, is_in_line: Any) -> None:
    """Queue a task in an event loop that is closed without cancelling it."""

    def work() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(take(limiter, rpm=1))
        while not is_in_line():
            loop.run_until_complete(asyncio.sleep(0.001))
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.mark.slow
def test_four_processes_of_fifty_tasks_keep_the_limit_at_one_bucket(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'limits.db'}"
    processes = [start("tests.support.rush", url, str(seed)) for seed in range(4)]
    events: list[Event] = []
    longest_ms = writes = admitted = 0
    for process in processes:
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        told = json.loads(out)
        writes += told["writes"]
        for began_ms, ended_ms, amount in told["taken"]:
            events.append(Event(ended_ms, "rpm", amount * 1000, admitted=True))
            longest_ms = max(longest_ms, ended_ms - began_ms)
            admitted += 1
    assert writes <= admitted - len(processes) * SAVED, "nothing was coalesced"
    assert_window_theorem({"key": events}, [LIMIT], skew_ms=longest_ms)
    asyncio.run(assert_books_agree(url, events))


async def assert_books_agree(url: str, events: list[Event]) -> None:
    async with await Repository.connect(url=url) as repository:
        home = BucketAddress(repository.namespace_id, "key", "gpt-4")
        bucket = (await repository.scope.store.buckets.read([home]))[home]
        assert bucket.acquires == len(events)
        assert bucket.cells["rpm"].consumed_milli == sum(event.amount_milli for event in events)
