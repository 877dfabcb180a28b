"""Write queues: one write under way for each bucket item of this process.

A caller that finds no write under way at an item writes at once, so that an idle bucket adds
no latency. Callers that come meanwhile queue up with a ticket. When the write ends, the first
ticket in the queue becomes the leader of the next batch, and takes along the followers whose
loads fit into the same write.

An interrupt may arrive between any two steps, even while another is being dealt with. An item
that stayed taken would stop every later caller. So whoever may have taken an item leaves it
whatever happens, and leaves again if an interrupt came in the middle of leaving.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum, auto

from ...core.bucket import BucketAddress
from ...core.exceptions import StorageUnavailable
from ...local.fork_safety import forget_in_child, new_lock
from ...ports.io import Signal

MAX_WAITING = 10_000


class Stage(Enum):
    """Where a ticket stands. A ticket is over when it leads, or when it has an outcome."""

    WAITING = auto()
    CHOSEN = auto()
    """It leads the next batch, but its owner has not been woken yet."""
    LEADING = auto()
    FOLLOWING = auto()
    """Its load is in the batch of another leader."""
    UNREACHABLE = auto()
    """Its owner cannot be woken: the event loop is closed."""


_LEADS = (Stage.CHOSEN, Stage.LEADING)


@dataclass(slots=True, eq=False)
class Ticket:
    """A place in the queue of an item. `outcome` is None until its batch has ended.

    `group`: loads of the same group fit into one write. `is_owed`: the load is a debt to the
    bucket, such as a refund, and is never turned away or given up.
    """

    signal: Signal
    load: object
    group: Hashable
    is_owed: bool = False
    stage: Stage = Stage.WAITING
    outcome: object = None

    @property
    def leads(self) -> bool:
        """True when this ticket's owner carries out the next batch."""
        return self.stage in _LEADS

    @property
    def is_queued(self) -> bool:
        """False once the load is in a batch of another leader, or its owner is unreachable."""
        return self.stage not in (Stage.FOLLOWING, Stage.UNREACHABLE)

    @property
    def is_over(self) -> bool:
        """True when there is nothing to wait for any more."""
        return self.leads or self.outcome is not None


_NO_QUEUE: OrderedDict[int, Ticket] = OrderedDict()


class WriteQueues:
    """The items that are being written, by whom, and who waits. Any number of threads and tasks
    may share one."""

    def __init__(self) -> None:
        self._owners: dict[BucketAddress, object] = {}
        # By identity and in order, only where a ticket waits: leaving a long queue is O(1).
        self._queues: dict[BucketAddress, OrderedDict[int, Ticket]] = {}
        self._lock = new_lock()
        forget_in_child(self)

    def start(self, address: BucketAddress, owner: object) -> bool:
        """Take the item, if no write is under way."""
        with self._lock:
            if address in self._owners:
                return False
            self._owners[address] = owner
            return True

    def join(self, address: BucketAddress, ticket: Ticket) -> None:
        """Queue up, or lead at once if the item has come free meanwhile."""
        with self._lock:
            if address not in self._owners:
                self._owners[address] = ticket
                ticket.stage = Stage.LEADING
                return
            queue = self._queues.setdefault(address, OrderedDict())
            if len(queue) >= MAX_WAITING and not ticket.is_owed:
                # Corrections are as many as there are leases; turned away, tokens would be lost.
                raise StorageUnavailable(f"{MAX_WAITING} wait for {address}", retryable=False)
            queue[id(ticket)] = ticket

    def form_batch(self, address: BucketAddress, batch: list[Ticket]) -> None:
        """Move the tickets of the leader's group from the queue into its batch."""
        group = batch[0].group
        with self._lock:
            waiting = list(self._queues.get(address, _NO_QUEUE).values())
            staying = [ticket for ticket in waiting if ticket.group != group]
            following = [ticket for ticket in waiting if ticket.group == group]
            rest = OrderedDict((id(ticket), ticket) for ticket in staying)
            # Without a call between these lines, no interrupt can come between them: a ticket
            # that stayed in the queue would be chosen to lead when its owner has gone.
            batch += following
            self._queues[address] = rest
            for ticket in following:
                ticket.stage = Stage.FOLLOWING

    def leave(self, address: BucketAddress, owner: object) -> None:
        """Give up the item, or the place in its queue. The first ticket in the queue that can be
        woken leads next; without one the item is free. Leaving twice does no harm."""
        with self._lock:
            # Mostly nobody waits.
            if address not in self._queues and self._owners.get(address) is owner:
                del self._owners[address]
                return
        while True:
            leader = self._hand_over(address, owner)
            if not isinstance(leader, Ticket) or leader.stage is Stage.LEADING:
                return
            leader.stage = Stage.CHOSEN
            if leader.signal.set():
                leader.stage = Stage.LEADING
                return
            leader.stage = Stage.UNREACHABLE
            owner = leader

    def _hand_over(self, address: BucketAddress, owner: object) -> object:
        """Take someone out, and return whose the item is then. Each step may be the last that
        an interrupt lets happen, so that doing all of them again completes them."""
        with self._lock:
            queue = self._queues.get(address, _NO_QUEUE)
            queue.pop(id(owner), None)
            if self._owners.get(address) is owner:
                if queue:
                    self._owners[address] = next(iter(queue.values()))
                else:
                    self._queues.pop(address, None)
                    del self._owners[address]
            leader = self._owners.get(address)
            queue.pop(id(leader), None)
        return leader

    def give_up(self, address: BucketAddress, ticket: Ticket) -> bool:
        """Leave. False when it is too late: the ticket's batch is under way."""
        self.leave(address, ticket)
        return ticket.is_queued

    def forget(self) -> None:
        """Forget who writes and who waits."""
        self._owners = {}
        self._queues = {}
