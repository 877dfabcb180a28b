"""The truth is what really happened in the store, whatever the clients were told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, product

from zae_limiter.backends.memory import MemoryStore
from zae_limiter.backends.memory.readings import forget
from zae_limiter.backends.memory.tables import Tables
from zae_limiter.core.apply import apply
from zae_limiter.core.audit import AuditEvent
from zae_limiter.core.bucket import Bucket, BucketAddress
from zae_limiter.core.changes import BucketChange
from zae_limiter.core.hierarchy import ConfigSlot, decide, slots
from zae_limiter.core.idempotency import operation_name
from zae_limiter.core.limit import Limit, LimitSet
from zae_limiter.core.models import LimiterConfig
from zae_limiter.core.receipts import ReceiptSwap, StaleReceipt
from zae_limiter.core.writes import Granted, Outcome, Write
from zae_limiter.ports.repository_protocol import (
    Buckets,
    ConfigPage,
    Configs,
    Declaration,
    Receipts,
)
from zae_limiter.runtime.simulated_scheduler import Scheduler

Apply = Callable[[Write, Bucket | None], Outcome]
Limits = tuple[Limit, ...] | None
Addressed = tuple[BucketAddress, Write]


@dataclass(frozen=True, slots=True)
class Applied:
    """A write that changed a bucket, with the true time and the images around it. Those
    that went together have the same step."""

    step: int
    at_ms: int
    address: BucketAddress
    write: Write
    before: Bucket | None
    after: Bucket


@dataclass(frozen=True, slots=True)
class Change:
    """A slot of the configuration came to say something else."""

    at_ms: int
    slot: ConfigSlot
    limits: Limits


@dataclass(frozen=True, slots=True)
class Swapped:
    """A swap of a receipt that took effect, with the true time, and the writes that went along."""

    at_ms: int
    swap: ReceiptSwap
    writes: tuple[Addressed, ...]


@dataclass(slots=True)
class Truth:
    """Everything that took effect, in order."""

    scheduler: Scheduler
    applied: list[Applied] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    landed: set[tuple[BucketAddress, str]] = field(default_factory=set)
    expired: set[BucketAddress] = field(default_factory=set)
    stream: list[BucketChange] = field(default_factory=list)
    swapped: list[Swapped] = field(default_factory=list)

    def tell(self, address: BucketAddress, before: Bucket | None, after: Bucket | None) -> None:
        """Put a change of an item into the stream."""
        number = str(len(self.stream))
        sequence = f"label/{number:0>40}"
        now_ms = self.scheduler.now_ms
        self.stream.append(BucketChange(address, sequence, now_ms, before, after, number))

    def histories(self) -> dict[BucketAddress, list[Applied]]:
        """What was applied to each bucket, all of its shards together."""
        found: dict[BucketAddress, list[Applied]] = {}
        for applied in self.applied:
            found.setdefault(applied.address.home, []).append(applied)
        return found

    def limits_in_force(
        self, entity_id: str, resource: str, since_ms: int, until_ms: int
    ) -> set[LimitSet]:
        """Every decision that records of this interval can lead to."""
        places = slots(entity_id, resource)
        said = [list(self._said(slot, since_ms, until_ms)) for slot in places]
        found = set()
        for combination in product(*said):
            stored = {s: LimiterConfig(x) for s, x in zip(places, combination, strict=True)}
            limits, _ = decide(places, stored)
            if limits is not None:
                found.add(LimitSet.of(limits))
        return found

    def _said(self, slot: ConfigSlot, since_ms: int, until_ms: int) -> Iterator[Limits]:
        last: Limits = None
        for change in self.changes:
            if change.slot != slot or change.at_ms > until_ms:
                continue
            if change.at_ms >= since_ms:
                yield last
            last = change.limits
        yield last


class TrueStore(MemoryStore):
    """A store in memory that writes down what takes effect."""

    buckets: Buckets  # type: ignore[assignment]
    configs: Configs  # type: ignore[assignment]
    receipts: Receipts  # type: ignore[assignment]

    def __init__(self, scheduler: Scheduler, apply: Apply = apply, *, metered: bool) -> None:
        super().__init__(apply)
        self.truth = Truth(scheduler)
        self._tables = self.buckets._tables  # type: ignore[attr-defined]
        self.buckets = buckets = _TrueBuckets(self.buckets, self.truth, metered)
        self.receipts = _TrueReceipts(self.receipts, buckets, self.truth)
        self.configs = _TrueConfigs(self.configs, self.truth, self._tables)

    def expire(self) -> None:
        """Drop the items whose time is over, as a store may at any moment."""
        now_ms = self.truth.scheduler.now_ms
        items = self._tables.buckets
        expired = {address for address, item in items.items() if item.is_expired(now_ms)}
        for address in sorted(expired):
            self.truth.tell(address, items[address], None)
        forget(self._tables, lambda address: address in expired)
        self.truth.expired.update(address.home for address in expired)


class _TrueBuckets:
    def __init__(self, buckets: Buckets, truth: Truth, metered: bool) -> None:
        self.metered = metered
        self.read = buckets.read
        self.fence = buckets.fence
        self.of_entity = buckets.of_entity
        self.of_resource = buckets.of_resource
        self.of_resource_after = buckets.of_resource_after
        self.of_namespace_after = buckets.of_namespace_after
        self._buckets = buckets
        self._truth = truth
        self._steps = count()

    async def write(self, address: BucketAddress, write: Write) -> Outcome:
        return (await self._carry_out([(address, write)]))[0]

    async def write_all(self, writes: Sequence[Addressed]) -> list[Outcome]:
        return await self._carry_out(writes)

    async def _carry_out(self, writes: Sequence[Addressed]) -> list[Outcome]:
        before = await self._buckets.read([address for address, _ in writes])
        if len(writes) == 1:
            outcomes = [await self._buckets.write(*writes[0])]
        else:
            outcomes = await self._buckets.write_all(writes)
        if all(isinstance(outcome, Granted) for outcome in outcomes):
            self.note(writes, before, outcomes)
        return outcomes

    def note(
        self,
        writes: Sequence[Addressed],
        before: Mapping[BucketAddress, Bucket],
        outcomes: Sequence[Outcome],
    ) -> None:
        step, truth = next(self._steps), self._truth
        for (address, write), outcome in zip(writes, outcomes, strict=True):
            assert isinstance(outcome, Granted)
            seen = before.get(address)
            if outcome.bucket is not seen:
                now_ms = truth.scheduler.now_ms
                truth.applied.append(Applied(step, now_ms, address, write, seen, outcome.bucket))
                truth.tell(address, seen, outcome.bucket)
                truth.landed.add((address, operation_name(write.operation)))


class _TrueReceipts:
    def __init__(self, receipts: Receipts, buckets: _TrueBuckets, truth: Truth) -> None:
        self.read = receipts.read
        self._receipts = receipts
        self._buckets = buckets
        self._truth = truth

    async def swap(
        self, swap: ReceiptSwap, writes: Sequence[Addressed] = ()
    ) -> list[Outcome] | StaleReceipt:
        before = await self._buckets.read([address for address, _ in writes])
        answer = await self._receipts.swap(swap, writes)
        if isinstance(answer, list) and all(isinstance(each, Granted) for each in answer):
            self._buckets.note(writes, before, answer)
            now_ms = self._truth.scheduler.now_ms
            self._truth.swapped.append(Swapped(now_ms, swap, tuple(writes)))
        return answer


class _TrueConfigs:
    def __init__(self, configs: Configs, truth: Truth, tables: Tables) -> None:
        self._configs = configs
        self._truth = truth
        self._tables = tables
        self.mark = configs.mark
        self.marks = configs.marks
        self.entities_with_limits = configs.entities_with_limits
        self.resources_with_entity_limits = configs.resources_with_entity_limits
        self.resources_with_defaults = configs.resources_with_defaults

    async def read(
        self, namespace_id: str, slots: Sequence[ConfigSlot], entity_id: str | None = None
    ) -> ConfigPage:
        return await self._configs.read(namespace_id, slots, entity_id)

    async def entities_with_records(self, namespace_id: str, at_most: int) -> frozenset[str] | None:
        """List them, as SQLite does."""
        slots = [slot for owner, slot in self._tables.configs if owner == namespace_id]
        owners = {slot.entity_id for slot in slots if slot.entity_id is not None}
        owners |= {name for owner, name in self._tables.entities if owner == namespace_id}
        return frozenset(owners) if len(owners) <= at_most else None

    async def write(
        self,
        namespace_id: str,
        slot: ConfigSlot,
        change: LimiterConfig,
        event: AuditEvent,
        declaration: Declaration | None = None,
    ) -> int | None:
        version = await self._configs.write(namespace_id, slot, change, event, declaration)
        self._note(slot, change.limits)
        return version

    async def delete(
        self,
        namespace_id: str,
        slot: ConfigSlot,
        event: AuditEvent,
        declaration: Declaration | None = None,
    ) -> bool:
        deleted = await self._configs.delete(namespace_id, slot, event, declaration)
        self._note(slot, None)
        return deleted

    def _note(self, slot: ConfigSlot, limits: Limits) -> None:
        self._truth.changes.append(Change(self._truth.scheduler.now_ms, slot, limits))
