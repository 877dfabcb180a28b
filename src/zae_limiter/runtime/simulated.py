"""The simulated driver runs many processes on one store, in one thread, from one seed."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any

from ..ports.repository_protocol import RepositoryProtocol
from .simulated_faults import DistantStore, Faults, Line
from .simulated_io import SimulatedIo
from .simulated_scheduler import Scheduler, Task

_PERFECT = Faults()


@dataclass(frozen=True, slots=True, eq=False)
class Client:
    """A client is one simulated process: its `Io`, its clock and its line to the store."""

    io: SimulatedIo
    store: DistantStore
    line: Line


class Simulation:
    """A simulation is a world in which every choice is drawn from one seed.

    `jump_ms`: how far time may jump while tasks are ready to run.
    """

    def __init__(self, seed: int, *, jump_ms: int = 0) -> None:
        self.rng = Random(seed)
        self.scheduler = Scheduler(self.rng, jump_ms=jump_ms)
        self._clients = 0
        self._network = self._io(0)

    @property
    def now_ms(self) -> int:
        """The true time, which no client knows."""
        return self.scheduler.now_ms

    def client(
        self, store: RepositoryProtocol, faults: Faults = _PERFECT, *, ahead_ms: int = 0
    ) -> Client:
        """Start a new process whose clock is ahead of the true time (or, negative, behind)."""
        io = self._io(ahead_ms)
        line = Line(io, self._network, self.rng, faults)
        return Client(io, DistantStore(store, line), line)

    def spawn(self, client: Client, work: Coroutine[Any, Any, Any]) -> Task:
        """Start a task of a process. A task that fails ends the run with its error."""
        return self.scheduler.spawn(client.io.process, work)

    def crash(self, client: Client) -> None:
        """Kill a process: its tasks end where they are, and nothing is cleaned up."""
        self.scheduler.kill(client.io.process)

    def run(self) -> None:
        """Run until every task has ended."""
        self.scheduler.run()

    def _io(self, ahead_ms: int) -> SimulatedIo:
        self._clients += 1
        return SimulatedIo(self.scheduler, self.rng, self._clients, ahead_ms)
