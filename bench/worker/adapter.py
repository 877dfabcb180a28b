"""What a limiter must be able to do to be measured."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Sequence
from itertools import chain

from .job import Job

FOR_EVER_S = 86_400.0

Lanes = Sequence[Iterable[str]]
"""For each task the entities it acquires for. Tasks may share an iterator."""


class Tape:
    """What was seen while acquires were made."""

    def __init__(self, seconds: float) -> None:
        self.latencies_ns = array("q")
        self.admitted = 0
        self.ended_s = 0.0
        self.cpu_s = 0.0
        self.began_s = time.time()
        self._cpu_before_s = time.process_time()
        self.began_ns = time.perf_counter_ns()
        self.deadline_ns = self.began_ns + int(seconds * 1e9)

    def end(self, admitted: int) -> Tape:
        """Stop the clocks."""
        self.cpu_s = time.process_time() - self._cpu_before_s
        self.ended_s = time.time()
        self.admitted = admitted
        return self


class Adapter(ABC):
    """A limiter, set up for a job."""

    @abstractmethod
    def __init__(self, job: Job) -> None:
        """Open it."""

    @abstractmethod
    def acquire(self, entity: str) -> bool:
        """Take what the job says from every limit of an entity; False when it is refused."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything."""

    def run(self, lanes: Lanes, seconds: float = FOR_EVER_S) -> Tape:
        """Acquire for one entity after the other, until time or entities run out."""
        tape = Tape(seconds)
        return tape.end(self.call_on(chain.from_iterable(lanes), tape))

    def call_on(self, entities: Iterable[str], tape: Tape) -> int:
        """Do that on a running tape, and say how many were admitted."""
        acquire, clock, note = self.acquire, time.perf_counter_ns, tape.latencies_ns.append
        admitted, then_ns, deadline_ns = 0, tape.began_ns, tape.deadline_ns
        for entity in entities:
            admitted += acquire(entity)
            now_ns = clock()
            note(now_ns - then_ns)
            then_ns = now_ns
            if now_ns >= deadline_ns:
                break
        return admitted
