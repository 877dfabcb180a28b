"""A trial gives each check a store, a driver, and a namespace of its own."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

from ...core.audit import AuditEvent, ulid
from ...core.bucket import Bucket, BucketAddress
from ...core.limit import Limit, LimitSet
from ...core.planner import Intent, plan_create
from ...core.windows import iso_ms
from ...core.writes import Adjust, Create, Outcome, Take, Write
from ...ports.io import Io
from ...ports.repository_protocol import RepositoryProtocol

T = TypeVar("T")

TRIAL_LIMITS = LimitSet.of(
    [Limit.per_minute("rpm", 100), Limit.per_hour("tpm", 5_000, burst=1_000)]
)


def expect(holds: bool, what: str) -> None:
    """Fail the check unless this holds."""
    if not holds:
        raise AssertionError(what)


def same(found: object, wanted: object, what: str) -> None:
    """Fail the check unless these are equal."""
    expect(found == wanted, f"{what}\n  found:  {found!r}\n  wanted: {wanted!r}")


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial is one run of one check. Its time stands still, so no window ends meanwhile."""

    store: RepositoryProtocol
    io: Io
    namespace_id: str
    now_ms: int
    _ticks: Iterator[int] = field(default_factory=count)

    @classmethod
    def begin(cls, store: RepositoryProtocol, io: Io) -> Trial:
        """Begin a trial with a namespace id that no other trial has."""
        return cls(store, io, f"trial-{io.entropy():x}", io.now_ms())

    def other_tenant(self) -> Trial:
        """Begin a trial in another namespace of the store."""
        return self.begin(self.store, self.io)

    def tenant(self, namespace_id: str) -> Trial:
        """Return a trial in the named namespace of the store."""
        return Trial(self.store, self.io, namespace_id, self.now_ms)

    def name(self, stem: str) -> str:
        """Return a name for a record that no namespace keeps apart."""
        return f"{stem}-{self.namespace_id}"

    def address(
        self, entity_id: str = "key-1", resource: str = "gpt-4", shard: int = 0
    ) -> BucketAddress:
        return BucketAddress(self.namespace_id, entity_id, resource, shard)

    def event(self, entity_id: str = "key-1", action: str = "limits_set") -> AuditEvent:
        """Return a new event, a millisecond later than the previous one."""
        at_ms = self.now_ms + next(self._ticks)
        event_id = ulid(at_ms, self.io.entropy())
        details = {"note": "größer ≥ 10 €", "amount": 10**18}
        return AuditEvent(event_id, iso_ms(at_ms), action, entity_id, "admin", "gpt-4", details)

    async def write(self, address: BucketAddress, write: Write) -> Outcome:
        return await self.store.buckets.write(address, write)

    async def bucket(self, address: BucketAddress) -> Bucket | None:
        return (await self.store.buckets.read([address])).get(address)

    async def event_ids(self, entity_id: str = "key-1") -> list[str]:
        """Return the recorded events, newest first."""
        events = await self.store.audit.read(self.namespace_id, entity_id, 1000, None)
        return [event.event_id for event in events]

    async def at_once(self, flows: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """Run all flows at the same time; none may fail."""
        results: list[T] = []
        for outcome in await self.io.gather(list(flows)):
            if isinstance(outcome, BaseException):
                raise outcome
            results.append(outcome)
        return results

    def create(
        self, takes_milli: Mapping[str, int] | None = None, limits: LimitSet = TRIAL_LIMITS
    ) -> Create:
        """Return the creation of a full bucket from which this much is taken."""
        intent = Intent(limits, takes_milli or {}, 1, None, None, False)
        planned = plan_create(intent, self.io.operation_id(), self.now_ms)
        assert isinstance(planned, Create)
        return planned

    def take(self, limits: LimitSet = TRIAL_LIMITS, **takes_milli: int) -> Take:
        """Return a taking that every bucket with these limits and enough stored tokens covers."""
        return Take(
            self.io.operation_id(),
            self.now_ms,
            limits.fingerprint,
            takes_milli,
            acquires=1,
            refilled_from_ms=0,
            refilled_until_ms=None,
            floors_milli=takes_milli,
            roofs_milli=dict.fromkeys(takes_milli, 10**18),
        )

    def take_unseen(self, limits: LimitSet = TRIAL_LIMITS, **takes_milli: int) -> Take:
        """Return a taking from a bucket that has not been seen, and must not have expired."""
        return self.take(limits, **takes_milli)._replace(unexpired=True)

    def take_gained(self, seen: Bucket, **takes_milli: int) -> Take:
        """Return a taking of as much as an empty bucket has gained since it was seen."""
        return self.take(TRIAL_LIMITS, **takes_milli)._replace(
            fingerprint=seen.fingerprint,
            refilled_from_ms=seen.refilled_at_ms,
            refilled_until_ms=seen.refilled_at_ms,
            floors_milli=dict.fromkeys(takes_milli, 0),
        )

    def adjust(self, **deltas_milli: int) -> Adjust:
        """Return a correction."""
        return Adjust(self.io.operation_id(), self.now_ms, deltas_milli, acquires=0)
