"""Wait queues: the requests of this process that wait for a bucket, in the order they came."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from ...core.bucket import BucketAddress
from ...local.fork_safety import forget_in_child, new_lock
from ...ports.io import Signal

_REMEMBERED_NOTIFICATIONS = 64


@dataclass(slots=True, eq=False)
class Place:
    """A waiter's place in the queue of a bucket. While the waiter is trying to be served, nobody
    can tell whether the bucket has been charged for it already."""

    address: BucketAddress
    takes_milli: Mapping[str, int]
    signal: Signal
    is_trying: bool = False


@dataclass(slots=True, eq=False, weakref_slot=True)
class WaitQueues:
    """A queue for each bucket that a request waits for: as many queues as waiters at most."""

    notifications: int = 0
    _queues: dict[BucketAddress, list[Place]] = field(default_factory=dict)
    _notified: deque[BucketAddress] = field(
        default_factory=lambda: deque(maxlen=_REMEMBERED_NOTIFICATIONS)
    )
    _lock: threading.Lock = field(default_factory=new_lock)

    def __post_init__(self) -> None:
        forget_in_child(self)

    def forget(self) -> None:
        """Forget all waiters."""
        self._queues = {}

    def busy(self, addresses: Iterable[BucketAddress]) -> BucketAddress | None:
        """The first of these buckets that a request waits for."""
        if not self._queues:
            return None
        with self._lock:
            return next((address for address in addresses if address in self._queues), None)

    def notified_since(self, address: BucketAddress, notifications: int) -> bool:
        """True when the bucket may have changed since this count of notifications. A waiter that
        is about to join a queue was not in it to be notified."""
        with self._lock:
            later = self.notifications - notifications
            return later > len(self._notified) or address in islice(reversed(self._notified), later)

    def join(self, place: Place) -> bool:
        """Take a place at the end. True when other waiters are ahead."""
        with self._lock:
            queue = self._queues.setdefault(place.address, [])
            queue.append(place)
            return len(queue) > 1

    def ahead_milli(self, place: Place) -> dict[str, int]:
        """The total that the waiters ahead are still sure to take."""
        total_milli: dict[str, int] = {}
        with self._lock:
            queue = self._queues[place.address]
            for other in queue[: queue.index(place)]:
                for name, amount_milli in other.takes_milli.items():
                    if not other.is_trying:
                        total_milli[name] = total_milli.get(name, 0) + amount_milli
        return total_milli

    def is_first(self, place: Place) -> bool:
        """True when it is this waiter's turn."""
        with self._lock:
            return self._queues[place.address][0] is place

    def leave(self, place: Place) -> None:
        """Give the place up and wake the waiter that is first now."""
        with self._lock:
            queue = self._queues[place.address]
            queue.remove(place)
            if not queue:
                del self._queues[place.address]
        self.notify([place.address])

    def notify(self, addresses: Iterable[BucketAddress]) -> None:
        """Tell the first waiter of each bucket that something has changed there, be it at one
        of its shards."""
        homes = {address.home for address in addresses}
        with self._lock:
            self.notifications += len(homes)
            self._notified.extend(homes)
            signals = [self._queues[home][0].signal for home in homes if home in self._queues]
        for signal in signals:
            signal.set()
