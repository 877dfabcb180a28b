"""Wait queues: the requests of this process that wait for a bucket, in the order they came."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from ...core.bucket import BucketAddress
from ...local.fork_safety import forget_in_child, new_lock
from ...ports.io import Signal

_REMEMBERED_NOTIFICATIONS = 64
_MOST_TRYING = 64


@dataclass(slots=True, eq=False)
class Place:
    """A waiter's place in the queue of a bucket. While the waiter is trying to be served, nobody
    can tell whether the bucket has been charged for it already.

    `ahead_milli`: the total that was waited for when the waiter joined. `gone_milli`: the total of
    all who had left the queue by then. `in_vain`: the waiter tried behind others, and was short.
    """

    address: BucketAddress
    takes_milli: Mapping[str, int]
    signal: Signal
    is_trying: bool = False
    in_vain: bool = False
    ahead_milli: Mapping[str, int] = field(default_factory=dict)
    gone_milli: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Queue:
    """The waiters of one bucket, in order, and their totals: no step costs more the longer the
    queue is.

    `waiting_milli`: the total of those who wait. `trying_milli`: the total of those who are trying.
    `gone_milli`: the total of those who have left, or are trying.
    """

    places: OrderedDict[int, Place] = field(default_factory=OrderedDict)
    waiting_milli: dict[str, int] = field(default_factory=dict)
    trying_milli: dict[str, int] = field(default_factory=dict)
    gone_milli: dict[str, int] = field(default_factory=dict)

    @property
    def first(self) -> Place:
        return next(iter(self.places.values()))

    @property
    def first_waiting(self) -> Place | None:
        """The first that is not trying; None if there is none, or many are trying."""
        some = islice(self.places.values(), _MOST_TRYING)
        return next((place for place in some if not place.is_trying), None)

    def set_trying(self, place: Place, is_trying: bool) -> None:
        place.is_trying = is_trying
        self.count(place, -1 if is_trying else 1)
        _add(self.trying_milli, place.takes_milli, 1 if is_trying else -1)

    def count(self, place: Place, sign: int) -> None:
        """Count a waiter as one that no longer waits (-1), or does so again (1)."""
        _add(self.waiting_milli, place.takes_milli, sign)
        _add(self.gone_milli, place.takes_milli, -sign)

    def ahead_milli(self, place: Place) -> dict[str, int]:
        """The total that the waiters ahead are still sure to take. One that was behind and gave up
        counts as if it had been ahead: nobody is refused for that."""
        served = {n: g - place.gone_milli.get(n, 0) for n, g in self.gone_milli.items()}
        return {n: max(0, a - served.get(n, 0)) for n, a in place.ahead_milli.items()}


@dataclass(slots=True, eq=False, weakref_slot=True)
class WaitQueues:
    """A queue for each bucket that a request waits for: as many queues as waiters at most."""

    notifications: int = 0
    _queues: dict[BucketAddress, _Queue] = field(default_factory=dict)
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
            queue = self._queues.setdefault(place.address, _Queue())
            place.ahead_milli, place.gone_milli = dict(queue.waiting_milli), dict(queue.gone_milli)
            queue.places[id(place)] = place
            _add(queue.waiting_milli, place.takes_milli, 1)
            return len(queue.places) > 1

    def ahead_milli(self, place: Place) -> dict[str, int]:
        """The total that the waiters ahead are still sure to take."""
        with self._lock:
            return self._queues[place.address].ahead_milli(place)

    def try_now(self, place: Place, *, is_trying: bool) -> None:
        """Note that a waiter is trying to be served, or has tried in vain. The next one may be
        able to try at the same time: then both are served by one write."""
        with self._lock:
            queue = self._queues[place.address]
            if place.is_trying is not is_trying:
                queue.set_trying(place, is_trying)
            following = queue.first_waiting if is_trying else None
        if following is not None:
            following.signal.set()

    def trying_ahead(self, place: Place) -> Mapping[str, int] | None:
        """The total that the waiters ahead are trying to take; None if one of them just waits."""
        with self._lock:
            queue = self._queues[place.address]
            return dict(queue.trying_milli) if queue.first_waiting is place else None

    def is_first(self, place: Place) -> bool:
        """True when it is this waiter's turn."""
        with self._lock:
            return self._queues[place.address].first is place

    def leave(self, place: Place) -> None:
        """Give the place up and wake the waiter that is first now."""
        with self._lock:
            queue = self._queues[place.address]
            del queue.places[id(place)]
            if place.is_trying:
                _add(queue.trying_milli, place.takes_milli, -1)
            else:
                queue.count(place, -1)
            if not queue.places:
                del self._queues[place.address]
        self.notify([place.address])

    def notify(self, addresses: Iterable[BucketAddress]) -> None:
        """Tell the first waiter of each bucket that something has changed there, be it at one
        of its shards."""
        homes = {address.home for address in addresses}
        with self._lock:
            self.notifications += len(homes)
            self._notified.extend(homes)
            queues = [self._queues[home] for home in homes if home in self._queues]
            places = [place for queue in queues for place in (queue.first, queue.first_waiting)]
        for place in places:
            if place is not None:
                place.signal.set()


def _add(total_milli: dict[str, int], more_milli: Mapping[str, int], sign: int) -> None:
    for name, amount_milli in more_milli.items():
        total_milli[name] = total_milli.get(name, 0) + sign * amount_milli
