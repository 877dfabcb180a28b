"""The scheduler runs many tasks in one thread, on virtual time, in an order drawn from a seed.

A task runs until it hands over a `Wait`. Then the scheduler draws one of the tasks that are ready.
Time stands still while any task is ready, apart from small jumps that are drawn too, and moves to
the next timer when none is.
"""

from __future__ import annotations

import heapq
from collections.abc import Coroutine, Generator
from dataclasses import dataclass
from random import Random
from types import coroutine
from typing import Any

# Two seconds before an hour begins, so that every run crosses a usage window.
_START_MS = 1_699_999_198_000
_MAX_STEPS = 500_000
_JUMP_CHANCE = 0.1


class Cancelled(BaseException):
    """This exception is thrown into a cancelled task at its next wait that may be cancelled."""


class Killed(GeneratorExit):
    """This exception is thrown into every task of a process that dies. A dead task's calls have no
    effect, and whatever it awaits raises this again."""


class Process:
    """A process is a set of tasks that die together."""

    def __init__(self) -> None:
        self.is_alive = True


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """A wait is what a task hands over: the time until which it waits, or None when only a wake
    ends it."""

    until_ms: int | None
    cancellable: bool = False


@coroutine
def hand_over(wait: Wait) -> Generator[Wait, None, None]:
    """Suspend the current task, and let the scheduler draw the next."""
    yield wait


class Task:
    """A task is a coroutine that the scheduler runs. `root` is the task that it was spawned for, or
    itself. While it `is_shielded`, it cannot be cancelled."""

    def __init__(
        self, process: Process, work: Coroutine[Any, Any, Any], origin: Task | None
    ) -> None:
        self.process = process
        self.root: Task = self if origin is None else origin.root
        self.is_done = False
        self.is_shielded: bool = origin is not None and origin.is_shielded
        self.result: Any = None
        self._work = work
        self._wait: Wait | None = None
        self._is_ready = True
        self._is_cancelled = False
        self._thrown: BaseException | None = None
        self._awaited_by: Task | None = None

    def __repr__(self) -> str:
        return f"<task {self._work!r} waiting for {self._wait}>"


class Scheduler:
    """A scheduler owns the virtual time and the order in which tasks run."""

    def __init__(self, rng: Random, *, jump_ms: int = 0) -> None:
        self.now_ms = _START_MS
        self.current: Task | None = None
        self._rng = rng
        self._jump_ms = jump_ms
        self._live: dict[Task, None] = {}
        self._ready: list[Task] = []
        self._timers: list[tuple[int, int, Task, Wait]] = []
        self._waits = 0

    def spawn(
        self, process: Process, work: Coroutine[Any, Any, Any], origin: Task | None = None
    ) -> Task:
        """Start a task. An error of a task without an origin ends the run; an error of a task with
        an origin is its result."""
        task = Task(process, work, origin)
        self._live[task] = None
        self._ready.append(task)
        return task

    def tasks_of(self, process: Process) -> list[Task]:
        """Return the tasks of a process that have not ended, in the order in which they were
        spawned."""
        return [task for task in self._live if task.process is process]

    async def join(self, task: Task) -> Any:
        """Wait for the end of a task, and return its result."""
        task._awaited_by = self.current
        while not task.is_done:
            await hand_over(Wait(None))
        return task.result

    def wake(self, task: Task) -> None:
        """End a task's wait."""
        if task._wait is not None and not task._is_ready:
            task._is_ready = True
            self._ready.append(task)

    def cancel(self, task: Task) -> None:
        """Throw `Cancelled` into the task, now or at its next wait that may be cancelled."""
        if task.is_done:
            return
        task._is_cancelled = True
        if task._wait is not None and task._wait.cancellable and not task.is_shielded:
            self._deliver_cancellation(task)

    def kill(self, process: Process) -> None:
        """End a process at once, wherever its tasks are. A task cannot kill its own process."""
        assert self.current is None or self.current.process is not process
        process.is_alive = False
        for task in self.tasks_of(process):
            self._discard(task)

    def run(self) -> None:
        """Run until every task has ended."""
        try:
            for _ in range(_MAX_STEPS):
                task = self._draw()
                if task is None:
                    return
                self._step(task)
            raise RuntimeError(f"no end after {_MAX_STEPS} steps: {list(self._live)}")
        except BaseException:
            self.current = None
            for task in list(self._live):
                self.kill(task.process)
            raise

    def _draw(self) -> Task | None:
        self._pass_time()
        while self._live:
            while self._ready:
                task = self._take_one()
                if not task.is_done:
                    return task
            if not self._timers:
                raise RuntimeError(f"all wait for each other: {list(self._live)}")
            self.now_ms = max(self.now_ms, self._timers[0][0])
            self._fire_timers()
        return None

    def _take_one(self) -> Task:
        """Draw a task from the list of ready tasks, which has no order: the last fills the gap."""
        ready = self._ready
        place = int(self._rng.random() * len(ready))
        ready[place], ready[-1] = ready[-1], ready[place]
        return ready.pop()

    def _pass_time(self) -> None:
        if self._jump_ms and self._rng.random() < _JUMP_CHANCE:
            self.now_ms += self._rng.randint(1, self._jump_ms)
        self._fire_timers()

    def _fire_timers(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self.now_ms:
            _, _, task, wait = heapq.heappop(timers)
            if task._wait is wait:
                self.wake(task)

    def _step(self, task: Task) -> None:
        thrown, task._thrown = task._thrown, None
        task._wait, task._is_ready = None, False
        self.current = task
        try:
            wait = task._work.throw(thrown) if thrown is not None else task._work.send(None)
        except StopIteration as ended:
            self._end(task, ended.value)
        except BaseException as error:
            self._end(task, error)
            if task.root is task and not isinstance(error, Cancelled | Killed):
                raise
        else:
            self._suspend(task, wait)
        self.current = None

    def _suspend(self, task: Task, wait: Wait) -> None:
        task._wait = wait
        if wait.cancellable and task._is_cancelled and not task.is_shielded:
            self._deliver_cancellation(task)
        elif wait.until_ms is not None and wait.until_ms <= self.now_ms:
            self.wake(task)
        elif wait.until_ms is not None:
            self._waits += 1
            heapq.heappush(self._timers, (wait.until_ms, self._waits, task, wait))

    def _deliver_cancellation(self, task: Task) -> None:
        task._is_cancelled = False
        task._thrown = Cancelled()
        self.wake(task)

    def _end(self, task: Task, result: Any) -> None:
        task.is_done = True
        task.result = result
        del self._live[task]
        if task._awaited_by is not None:
            self.wake(task._awaited_by)

    def _discard(self, task: Task) -> None:
        killer, self.current = self.current, task
        try:
            task._work.throw(Killed())
        except (Killed, StopIteration):
            self._end(task, None)
        else:
            raise RuntimeError(f"{task} went on in a dead process")
        finally:
            self.current = killer
