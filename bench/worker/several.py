"""Several acquires under way at once: by tasks of asyncio, and by threads."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from .adapter import FOR_EVER_S, Adapter, Lanes, Tape
from .job import Job


class AsyncAdapter(Adapter):
    """A limiter that is awaited. Everything happens in one event loop."""

    def __init__(self, job: Job) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(self.open(job))

    @abstractmethod
    async def open(self, job: Job) -> None:
        """Open it."""

    @abstractmethod
    async def take(self, entity: str) -> bool:
        """What `acquire` does."""

    @abstractmethod
    async def shut(self) -> None:
        """What `close` does."""

    def acquire(self, entity: str) -> bool:
        return self._runner.run(self.take(entity))

    def close(self) -> None:
        self._runner.run(self.shut())
        self._runner.close()

    def run(self, lanes: Lanes, seconds: float = FOR_EVER_S) -> Tape:
        return self._runner.run(self._run(lanes, seconds))

    async def _run(self, lanes: Lanes, seconds: float) -> Tape:
        tape = Tape(seconds)
        callers = [self._call_on(lane, tape) for lane in lanes]
        return tape.end(sum(await asyncio.gather(*callers)))

    async def _call_on(self, entities: Iterable[str], tape: Tape) -> int:
        take, clock, note = self.take, time.perf_counter_ns, tape.latencies_ns.append
        admitted, then_ns, deadline_ns = 0, tape.began_ns, tape.deadline_ns
        for entity in entities:
            admitted += await take(entity)
            now_ns = clock()
            note(now_ns - then_ns)
            then_ns = now_ns
            if now_ns >= deadline_ns:
                break
        return admitted


class ThreadedAdapter(Adapter):
    """A limiter that blocks, and is called by a thread for each lane."""

    def run(self, lanes: Lanes, seconds: float = FOR_EVER_S) -> Tape:
        with ThreadPoolExecutor(len(lanes)) as pool:
            tape = Tape(seconds)
            return tape.end(sum(pool.map(lambda lane: self.call_on(lane, tape), lanes)))
