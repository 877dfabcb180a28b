"""A watch keeps what the clients saw: one story for each acquire, with its doubts."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeVar

from zae_limiter import Limit
from zae_limiter.core.bucket import Bucket, BucketAddress
from zae_limiter.core.exceptions import StorageUnavailable
from zae_limiter.core.hierarchy import ConfigSlot
from zae_limiter.core.idempotency import Landing, landing, operation_name
from zae_limiter.core.limit import MILLI, LimitSet
from zae_limiter.core.writes import Adjust, Granted, Outcome, Write
from zae_limiter.flows.acquire.lease_record import LeaseRecord
from zae_limiter.ports.repository_protocol import Buckets, ConfigPage, Configs
from zae_limiter.runtime.simulated import Client
from zae_limiter.runtime.simulated_scheduler import Scheduler, Task

from .truth import Addressed

Amounts = dict[str, int]
N = TypeVar("N", int, float)
MINUTE_MS = 60_000


class Ending(Enum):
    """How an acquire ended, as its caller saw it."""

    NONE = auto()  # the process was killed
    SETTLED = auto()
    REFUSED = auto()
    FAILED = auto()  # the body raised, or was cancelled
    UNAVAILABLE = auto()  # the store could not answer, on the way in
    UNSETTLED = auto()  # the same, on the way out


@dataclass(eq=False, repr=False)
class Story:
    """One acquire. Amounts are millitokens by limit name."""

    client: Client
    entity_id: str
    consume: Amounts
    override: list[Limit] | None
    timeout: float | None
    began_ms: int
    decided_ms: int = 0
    ending: Ending = Ending.NONE
    lease: LeaseRecord | None = None
    corrected: Amounts = field(default_factory=dict)
    most_milli: Amounts = field(default_factory=dict)
    doubts: dict[BucketAddress, set[str]] = field(default_factory=dict)
    last_sent: dict[BucketAddress, Write] = field(default_factory=dict)
    dismissed: set[tuple[BucketAddress, str]] = field(default_factory=set)
    unread: set[BucketAddress] = field(default_factory=set)
    troubled: set[BucketAddress] = field(default_factory=set)
    calls: int = 0
    faults: int = 0

    def __repr__(self) -> str:
        amounts = f"{self.consume} at {self.entity_id}, corrected by {self.corrected}"
        when = f"from {self.began_ms % MINUTE_MS} to {self.decided_ms % MINUTE_MS} ms"
        return f"<{self.ending.name} {amounts}, {when}, timeout {self.timeout}>"

    @property
    def override_set(self) -> LimitSet | None:
        return None if self.override is None else LimitSet.of(self.override)

    def asks(self, amounts: Amounts) -> None:
        """Count what may be charged at most."""
        for name, amount in amounts.items():
            self.most_milli[name] = self.most_milli.get(name, 0) + max(0, amount) * MILLI

    def concludes(self, address: BucketAddress, operation: str, *, landed: bool) -> None:
        """An answer ends the doubt about a write."""
        self.doubts[address].discard(operation)
        if landed:
            self.dismissed.discard((address, operation))
        else:
            self.dismissed.add((address, operation))

    def believes(self, home: BucketAddress) -> Amounts:
        """What the caller takes to be charged to a bucket in the end."""
        if self.lease is None or self.ending in (Ending.FAILED, Ending.REFUSED):
            return {}
        entries = [entry for entry in self.lease.ledger.entries if entry.address.home == home]
        total: Amounts = {}
        for entry in entries:
            add(total, entry.charged_milli)
        for name, delta in self.corrected.items():
            if any(name in entry.limit_names | entry.later_names for entry in entries):
                was_there = name in entries[0].limit_names
                least_milli = -math.inf if was_there else -total.get(name, 0)
                add(total, {name: int(max(delta * MILLI, least_milli))})
        return total

    def doubts_about(self, home: BucketAddress) -> set[str]:
        """Writes to a bucket of which the client never learned what became of them."""
        return {
            operation
            for address, operations in self.doubts.items()
            for operation in operations
            if address.home == home
        }


def add(total: dict[str, N], more: Mapping[str, N]) -> None:
    """Count these too."""
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of the public interface, that writes are sent for."""

    story: Story
    called_ms: int


class Watch:
    """All stories, and which write belongs to which."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.stories: list[Story] = []
        self.sent: dict[str, Call] = {}
        self._scheduler = scheduler
        self._calling: dict[Task, Call] = {}

    def calls(self, story: Story, amounts: Amounts) -> None:
        """The current task calls the public interface for this story."""
        story.asks(amounts)
        self._calling[self._root()] = Call(story, self._scheduler.now_ms)

    def current(self) -> Call:
        """On whose behalf the current task runs."""
        return self._calling[self._root()]

    def _root(self) -> Task:
        assert self._scheduler.current is not None
        return self._scheduler.current.root


class WatchedBuckets:
    """The buckets of one client's store: notes what was sent and what came back."""

    def __init__(self, buckets: Buckets, watch: Watch) -> None:
        self._buckets = buckets
        self._watch = watch
        self.metered = buckets.metered
        self.of_entity = buckets.of_entity
        self.of_resource = buckets.of_resource
        self.of_resource_after = buckets.of_resource_after
        self.of_namespace_after = buckets.of_namespace_after

    async def write(self, address: BucketAddress, write: Write) -> Outcome:
        outcomes = await self._carry_out([(address, write)], self._buckets.write(address, write))
        return outcomes[0]

    async def write_all(self, writes: Sequence[Addressed]) -> list[Outcome]:
        return await self._carry_out(writes, self._buckets.write_all(writes))

    async def _carry_out(
        self, writes: Sequence[Addressed], call: Awaitable[Outcome | list[Outcome]]
    ) -> list[Outcome]:
        sent = self._watch.current()
        story = sent.story
        story.calls += 1
        for address, write in writes:
            self._watch.sent.setdefault(operation_name(write.operation), sent)
            # In doubt until it is answered: a process that dies meanwhile never learns.
            story.doubts.setdefault(address, set()).add(operation_name(write.operation))
            story.dismissed.discard((address, operation_name(write.operation)))
            story.last_sent[address] = write
        try:
            answer = await call
        except StorageUnavailable:
            story.faults += 1
            story.troubled |= {address.home for address, _ in writes}
            raise
        outcomes = answer if isinstance(answer, list) else [answer]
        landed = all(isinstance(outcome, Granted) for outcome in outcomes)
        for address, write in writes:
            story.concludes(address, operation_name(write.operation), landed=landed)
        return outcomes

    async def fence(self, address: BucketAddress, operation: str) -> Bucket | None:
        found = await self._look([address], self._fence(address, operation), is_fence=True)
        return found.get(address)

    async def _fence(self, address: BucketAddress, operation: str) -> dict[BucketAddress, Bucket]:
        bucket = await self._buckets.fence(address, operation)
        return {} if bucket is None else {address: bucket}

    async def read(self, addresses: Sequence[BucketAddress]) -> dict[BucketAddress, Bucket]:
        return await self._look(addresses, self._buckets.read(addresses))

    async def _look(
        self,
        addresses: Sequence[BucketAddress],
        look: Awaitable[dict[BucketAddress, Bucket]],
        *,
        is_fence: bool = False,
    ) -> dict[BucketAddress, Bucket]:
        call = self._watch.current()
        story = call.story
        story.calls += 1
        try:
            found = await look
        except StorageUnavailable:
            story.unread.update(addresses)
            raise
        for address in addresses:
            write = story.last_sent.get(address)
            if write is not None and self._still_asks(call, address, write):
                self._learn(story, address, write, found.get(address), is_fence)
        return found

    def _still_asks(self, call: Call, address: BucketAddress, write: Write) -> bool:
        """Whether a read is meant to tell what became of a write: not if it is for another
        call, nor if it may be for another attempt of one that waits."""
        story = call.story
        may_have_given_up = story.timeout is not None and address in story.unread
        in_doubt = operation_name(write.operation) in story.doubts[address]
        return (
            in_doubt
            and self._watch.sent[operation_name(write.operation)] is call
            and not may_have_given_up
        )

    def _learn(
        self,
        story: Story,
        address: BucketAddress,
        write: Write,
        bucket: Bucket | None,
        is_fence: bool,
    ) -> None:
        """A refund that is lost stays in doubt until it is sent again and answered: nobody
        who gives it up tells. Only a fence tells that a write will not land later, either."""
        landed = landing(write.operation, bucket)
        if landed is Landing.LANDED:
            story.concludes(address, operation_name(write.operation), landed=True)
        elif landed is Landing.LOST and is_fence and not isinstance(write, Adjust):
            story.concludes(address, operation_name(write.operation), landed=False)


class WatchedConfigs:
    """The configuration of one client's store: counts the calls."""

    def __init__(self, configs: Configs, watch: Watch) -> None:
        self._configs = configs
        self._watch = watch

    async def entities_with_records(self, namespace_id: str, at_most: int) -> frozenset[str] | None:
        self._watch.current().story.calls += 1
        return await self._configs.entities_with_records(namespace_id, at_most)

    async def read(
        self, namespace_id: str, slots: Sequence[ConfigSlot], entity_id: str | None = None
    ) -> ConfigPage:
        self._watch.current().story.calls += 1
        return await self._configs.read(namespace_id, slots, entity_id)
