"""One write in flight for each bucket item of this process; who comes meanwhile rides in the next.

Whoever finds the lane of an item free flies at once: an idle bucket adds no latency. When a
flight ends, the first who waits becomes the pilot of the next, and takes along all who can
ride with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..core.composite import BucketAddress
from ..core.exceptions import StorageUnavailable
from ..ports.io import Signal
from .charge import Charge, Shortage, Taken
from .forks import forget_in_child, new_lock

MAX_WAITING = 10_000


@dataclass(frozen=True, slots=True)
class Correction:
    """What an adjustment asks of an item."""

    deltas_milli: Mapping[str, int]
    acquires: int


@dataclass(frozen=True, slots=True)
class Corrected:
    """An adjustment was carried out."""


@dataclass(slots=True, eq=False)
class Rider:
    """Someone who waits for a flight. `outcome` is None until it has ended."""

    signal: Signal
    load: Charge | Correction
    is_pilot: bool = False
    has_boarded: bool = False
    outcome: Taken | Shortage | Corrected | BaseException | None = None

    @property
    def is_over(self) -> bool:
        """Whether its wait is: it is the pilot, or its flight has ended."""
        return self.is_pilot or self.outcome is not None


class Lanes:
    """The lanes in use. Any number of threads and tasks may share one."""

    def __init__(self) -> None:
        self._lines: dict[BucketAddress, list[Rider]] = {}
        self._lock = new_lock()
        forget_in_child(self)

    def start(self, address: BucketAddress) -> bool:
        """Take the lane, if it is free."""
        with self._lock:
            if address in self._lines:
                return False
            self._lines[address] = []
            return True

    def join(self, address: BucketAddress, rider: Rider) -> None:
        """Stand in line, or take the lane as pilot if it has come free meanwhile."""
        with self._lock:
            line = self._lines.get(address)
            if line is None:
                self._lines[address] = []
                rider.is_pilot = True
            elif len(line) < MAX_WAITING or isinstance(rider.load, Correction):
                # Corrections are as many as there are leases; turned away, tokens would be lost.
                line.append(rider)
            else:
                raise StorageUnavailable(f"{MAX_WAITING} wait for {address}", retryable=False)

    def board(self, address: BucketAddress, can_ride: Callable[[Rider], bool]) -> list[Rider]:
        """Those in line who can ride along; they leave the line."""
        with self._lock:
            line = self._lines[address]
            boarding = [rider for rider in line if can_ride(rider)]
            self._lines[address] = [rider for rider in line if not can_ride(rider)]
            for rider in boarding:
                rider.has_boarded = True
        return boarding

    def end(self, address: BucketAddress) -> None:
        """The flight is over: the first in line who can be woken flies next, or the lane is
        free."""
        with self._lock:
            line = self._lines[address]
            while line:
                following = line.pop(0)
                following.is_pilot = True
                if following.signal.set():
                    return
                # Gone with its event loop: it has no place left to give up.
                following.is_pilot, following.has_boarded = False, True
            del self._lines[address]

    def give_up(self, address: BucketAddress, rider: Rider) -> bool:
        """Leave. False when it is too late: the rider's flight is under way."""
        with self._lock:
            if rider.has_boarded:
                return False
            if not rider.is_pilot:
                self._lines[address].remove(rider)
                return True
        self.end(address)
        return True

    def forget(self) -> None:
        """Forget who flies and who waits."""
        self._lines = {}
