"""One write in flight for each bucket item of this process; who comes meanwhile rides in the next.

Whoever finds the lane of an item free flies at once: an idle bucket adds no latency. When a
flight ends, the first who waits becomes the pilot of the next, and takes along all who can
ride with it.

An interrupt may arrive between any two steps, also while another is being dealt with. A lane
that stayed taken would stop everyone for ever. So whoever may have taken one leaves it
whatever happens, and leaves again if an interrupt came in the midst of leaving.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...core.bucket import Bucket, BucketAddress
from ...core.exceptions import StorageUnavailable
from ...local.forks import forget_in_child, new_lock
from ...ports.io import Signal
from ..acquire.charge import Charge, Shortage, Taken

MAX_WAITING = 10_000


@dataclass(slots=True)
class Correction:
    """What an adjustment asks of an item."""

    deltas_milli: Mapping[str, int]
    acquires: int


@dataclass(frozen=True, slots=True)
class Corrected:
    """An adjustment was carried out."""


@dataclass(frozen=True, slots=True)
class Seen:
    """All items of a bucket were read."""

    items: Mapping[BucketAddress, Bucket]


@dataclass(slots=True, eq=False)
class Rider:
    """Someone who waits for a flight. `outcome` is None until it has ended.

    `is_called`: it has heard, or never had to, that it is the pilot.
    """

    signal: Signal
    load: Charge | Correction
    is_pilot: bool = False
    is_called: bool = False
    has_boarded: bool = False
    outcome: Taken | Shortage | Corrected | Seen | BaseException | None = None

    @property
    def is_over(self) -> bool:
        """Whether its wait is: it is the pilot, or its flight has ended."""
        return self.is_pilot or self.outcome is not None


_NOBODY: OrderedDict[int, Rider] = OrderedDict()


class Lanes:
    """The lanes in use, who flies in them and who waits. Any number of threads and tasks may
    share one."""

    def __init__(self) -> None:
        self._owners: dict[BucketAddress, object] = {}
        # By identity and in order, only where someone waits: one of very many leaves at once.
        self._lines: dict[BucketAddress, OrderedDict[int, Rider]] = {}
        self._lock = new_lock()
        forget_in_child(self)

    def start(self, address: BucketAddress, owner: object) -> bool:
        """Take the lane, if it is free."""
        with self._lock:
            if address in self._owners:
                return False
            self._owners[address] = owner
            return True

    def join(self, address: BucketAddress, rider: Rider) -> None:
        """Stand in line, or take the lane as pilot if it has come free meanwhile."""
        with self._lock:
            if address not in self._owners:
                self._owners[address] = rider
                rider.is_pilot = rider.is_called = True
                return
            line = self._lines.setdefault(address, OrderedDict())
            if len(line) >= MAX_WAITING and not isinstance(rider.load, Correction):
                # Corrections are as many as there are leases; turned away, tokens would be lost.
                raise StorageUnavailable(f"{MAX_WAITING} wait for {address}", retryable=False)
            line[id(rider)] = rider

    def board(
        self, address: BucketAddress, riders: list[Rider], can_ride: Callable[[Rider], bool]
    ) -> None:
        """Let those in line who can ride along join the riders; they leave the line."""
        with self._lock:
            waiting = list(self._lines.get(address, _NOBODY).values())
            boarding = [rider for rider in waiting if can_ride(rider)]
            staying = [rider for rider in waiting if not can_ride(rider)]
            riders += boarding
            for rider in boarding:
                rider.has_boarded = True
            self._lines[address] = OrderedDict((id(rider), rider) for rider in staying)

    def leave(self, address: BucketAddress, who: object) -> None:
        """Give the lane, or the place in its line, up: the first in line who can be woken flies
        next, or the lane is free. Leaving again, or where one never was, does no harm."""
        with self._lock:
            # Mostly nobody waits.
            if address not in self._lines and self._owners.get(address) is who:
                del self._owners[address]
                return
        while True:
            pilot = self._hand_over(address, who)
            if not isinstance(pilot, Rider) or pilot.is_called:
                return
            pilot.is_pilot = True
            if pilot.signal.set():
                pilot.is_called = True
                return
            # Gone with its event loop.
            pilot.is_pilot, pilot.has_boarded = False, True
            who = pilot

    def _hand_over(self, address: BucketAddress, who: object) -> object:
        """Take someone out, and return whose the lane is then. Each step may be the last that
        an interrupt lets happen, so that doing all of them again completes them."""
        with self._lock:
            line = self._lines.get(address, _NOBODY)
            line.pop(id(who), None)
            if self._owners.get(address) is who:
                if line:
                    self._owners[address] = next(iter(line.values()))
                else:
                    self._lines.pop(address, None)
                    del self._owners[address]
            pilot = self._owners.get(address)
            line.pop(id(pilot), None)
        return pilot

    def give_up(self, address: BucketAddress, rider: Rider) -> bool:
        """Leave. False when it is too late: the rider's flight is under way."""
        self.leave(address, rider)
        return not rider.has_boarded

    def forget(self) -> None:
        """Forget who flies and who waits."""
        self._owners = {}
        self._lines = {}
