"""This module is the port to a store, in small roles. Values are the domain's own.

Contracts that hold for every method:
- A call either takes effect as a whole or raises and has no effect, unless it raises
  `StorageUnavailable` with `ambiguous` set.
- Failures of the store are raised as `StorageUnavailable`, records that cannot be read as
  `StoredDataError` unless a method says otherwise. Any other exception is a bug and surfaces as it
  is.
- Ids and names were checked by the caller.

`zae_limiter.testing.conformance` checks these contracts on any store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from ..core.audit import AuditEvent
from ..core.bucket import Bucket, BucketAddress
from ..core.hierarchy import ConfigSlot
from ..core.models import (
    BackendCapabilities,
    Entity,
    LimiterConfig,
    UsageSnapshot,
    UsageSummary,
)
from ..core.receipts import Receipt, ReceiptKey, ReceiptSwap, StaleReceipt
from ..core.stats import StoreTraffic
from ..core.usage import UsageAddition
from ..core.windows import WindowType
from ..core.writes import Outcome, Write


class StoreClosed(RuntimeError):
    """A store has been closed and refuses a call, which had no effect and never will have."""

    ambiguous = False
    retryable = False


class Buckets(Protocol):
    """The role of bucket items. The consumption of each write is counted as usage in the same
    transaction, or by the reader of the store's stream of changes."""

    @property
    def metered(self) -> bool:
        """Whether the store limits how often an item can be written. If so, bucket items count
        their own writes, and an item that is written too often is split into shards."""

    async def write(self, address: BucketAddress, write: Write) -> Outcome:
        """Carry out `core.apply.apply` on the item, atomically."""

    async def write_all(self, writes: Sequence[tuple[BucketAddress, Write]]) -> list[Outcome]:
        """Carry out writes on different items, all or none. When none is carried out, outcomes
        other than `Granted` say why; `Granted` then means that this write alone would have applied.
        """

    async def fence(self, address: BucketAddress, operation: str) -> Bucket | None:
        """Refuse from now on the copy of a write with this operation id, and all that were planned
        before it (`core.idempotency.fenced`). Return the item, if there is one."""

    async def read(self, addresses: Sequence[BucketAddress]) -> dict[BucketAddress, Bucket]:
        """Return the items that exist, as of the last write that was answered."""

    async def of_entity(self, namespace_id: str, entity_id: str) -> dict[BucketAddress, Bucket]:
        """Return every bucket item of an entity. An item that cannot be read is left out, and a
        `StoredDataWarning` names it."""

    async def of_resource(self, namespace_id: str, resource: str) -> dict[BucketAddress, Bucket]:
        """Return every bucket item of a resource. An item that cannot be read is left out, and a
        `StoredDataWarning` names it."""

    async def of_resource_after(
        self, namespace_id: str, resource: str, cursor: str | None
    ) -> tuple[dict[BucketAddress, Bucket], str | None]:
        """Return one page of what `of_resource` returns, and the cursor of the next page. All items
        of a bucket are on one page. A page is small enough that no other caller waits for it. A
        deletion between two pages makes no page leave out an item that stays."""

    async def of_namespace_after(
        self, namespace_id: str, cursor: str | None
    ) -> tuple[dict[BucketAddress, Bucket], str | None]:
        """Return one page of all bucket items of a namespace, and the cursor of the next page. An
        item that cannot be read is left out, and a `StoredDataWarning` names it."""


class Receipts(Protocol):
    """The role of receipts, which are charges that other processes can find."""

    async def read(self, key: ReceiptKey) -> Receipt | None:
        """Return the receipt, as of the last swap that was answered."""

    async def swap(
        self, swap: ReceiptSwap, writes: Sequence[tuple[BucketAddress, Write]] = ()
    ) -> list[Outcome] | StaleReceipt:
        """Keep a receipt in place of the one that was seen (a compare-and-set on its revision) and
        carry out the writes on bucket items, all or none. Outcomes of writes are those of
        `Buckets.write_all`: if one of them is not `Granted`, the receipt was not kept, either.
        A receipt may be dropped from `drops_at_ms` on."""


@dataclass(frozen=True, slots=True)
class ConfigPage:
    """A config page holds the records that one read found; absent records are not in it."""

    configs: Mapping[ConfigSlot, LimiterConfig] = field(default_factory=dict)
    entity: Entity | None = None


class Declaration(NamedTuple):
    """A declaration ties a change of a configuration record to a manifest.

    `seen`: the record as it was read, None if there was none. The change is made only if the record
    still is so. `mark`: what the manifest says of the record, kept beside it, so that later changes
    of other origin are found; None if the manifest says nothing of it any more.
    """

    seen: LimiterConfig | None
    mark: str | None

    def is_current(self, stored: LimiterConfig | None) -> bool:
        """Whether the record is as it was seen."""
        if stored is None or self.seen is None:
            return stored is self.seen
        return stored == self.seen and stored.config_version == self.seen.config_version


class Configs(Protocol):
    """The role of stored limits and behaviour, with one record for each slot. A record that a
    manifest manages has a mark, which nothing but a declaration changes."""

    async def read(
        self, namespace_id: str, slots: Sequence[ConfigSlot], entity_id: str | None = None
    ) -> ConfigPage:
        """Read several slots, and an entity's record if one is named, in one call."""

    async def entities_with_records(self, namespace_id: str, at_most: int) -> frozenset[str] | None:
        """Return the entities that have any record of their own: a configuration, or the entity's
        own record. Returns None if there are more than `at_most`, or if the store cannot list them
        in one cheap and consistent read."""

    async def write(
        self,
        namespace_id: str,
        slot: ConfigSlot,
        change: LimiterConfig,
        event: AuditEvent,
        declaration: Declaration | None = None,
    ) -> int | None:
        """Set the fields of `change` that are not None and keep the others; `inherit` goes with the
        limits, and empty limits clear them. The record's `config_version` rises by one, also across
        a deletion, and is returned. The event and the mark of a declaration are recorded in the
        same transaction. Returns None, and changes nothing, when the record is not as the
        declaration has seen it."""

    async def delete(
        self,
        namespace_id: str,
        slot: ConfigSlot,
        event: AuditEvent,
        declaration: Declaration | None = None,
    ) -> bool:
        """Clear the record of the slot, its version apart, and return whether it held anything.
        Only then is the event recorded, and the mark of a declaration. Returns False, and changes
        nothing, when the record is not as the declaration has seen it."""

    async def marks(self, namespace_id: str) -> dict[ConfigSlot, str]:
        """Return the marks of all slots that a manifest manages. A mark that cannot be read is left
        out, and a `StoredDataWarning` names it."""

    async def mark(self, namespace_id: str, slot: ConfigSlot, mark: str | None) -> None:
        """Set the mark of a slot, or remove it (None), and leave the record as it is."""

    async def entities_with_limits(
        self, namespace_id: str, resource: str, limit: int | None, cursor: str | None
    ) -> tuple[list[str], str | None]:
        """Return one page of the ids of entities with limits of their own for a resource,
        sorted."""

    async def resources_with_entity_limits(self, namespace_id: str) -> list[str]:
        """Return the resources for which some entity has limits of its own, sorted."""

    async def resources_with_defaults(self, namespace_id: str) -> list[str]:
        """Return the resources that have defaults, sorted."""


@dataclass(frozen=True, slots=True)
class EntityQuery:
    """An entity query chooses entity records: all, or those whose id starts with `prefix`, whose
    parent is `parent_id`, or both."""

    prefix: str = ""
    parent_id: str | None = None


class Entities(Protocol):
    """The role of entity records."""

    async def create(self, namespace_id: str, entity: Entity, event: AuditEvent) -> bool:
        """Store a new entity with its event; return False, and store nothing, when the id is
        taken."""

    async def read(self, namespace_id: str, entity_id: str) -> Entity | None:
        """Return the entity, if there is one."""

    async def read_several(self, namespace_id: str, entity_ids: Sequence[str]) -> dict[str, Entity]:
        """Return the entities of these ids that exist, by id."""

    async def update(
        self, namespace_id: str, entity: Entity, expected_version: int, event: AuditEvent
    ) -> Entity | None:
        """Replace name and metadata if the stored version is the expected one (an optimistic lock),
        and count the version up. Returns None, and changes nothing, when the version is another or
        the entity is gone."""

    async def delete(self, namespace_id: str, entity_id: str, event: AuditEvent) -> int:
        """Delete the entity, its configuration, usage and buckets; audit records stay.

        Returns how many records were deleted; the event is recorded with `records_deleted`, unless
        there were none.
        """

    async def children(self, namespace_id: str, parent_id: str) -> list[Entity]:
        """Return the entities with this parent, sorted by id. An entity that cannot be read is left
        out, and a `StoredDataWarning` names it."""

    async def page(
        self, namespace_id: str, query: EntityQuery, limit: int, cursor: str | None
    ) -> tuple[list[Entity], str | None]:
        """Return one page of entities, sorted by id, and the cursor of the next page. An entity
        that cannot be read is left out, and a `StoredDataWarning` names it. Entities that come or
        go between two pages make no page repeat or leave out an entity that stays."""


@dataclass(frozen=True, slots=True)
class NamespaceRecord:
    """A namespace record ties a registered name to the opaque id that its data is stored under."""

    name: str
    namespace_id: str
    created_at: str
    status: str = "active"
    deleted_at: str | None = None


class Namespaces(Protocol):
    """The role of the registry of namespaces. An event that comes with a change is recorded with
    the `namespace_id`, in the same transaction, if anything changes. It is kept under the reserved
    namespace id `_`, so that it outlives the namespace."""

    async def register(
        self, record: NamespaceRecord, event: AuditEvent | None = None
    ) -> NamespaceRecord:
        """Store the record, or return the active record that has the name already."""

    async def read(self, name: str) -> NamespaceRecord | None:
        """Return the active namespace of this name."""

    async def read_id(self, namespace_id: str) -> NamespaceRecord | None:
        """Return the namespace of this id, whatever its status."""

    async def active(self) -> list[NamespaceRecord]:
        """Return all active namespaces, sorted by name. A record that cannot be read is left out,
        and a `StoredDataWarning` names it."""

    async def orphans(self) -> list[NamespaceRecord]:
        """Return the namespaces that were deleted and not yet purged."""

    async def delete(self, name: str, deleted_at: str, event: AuditEvent | None = None) -> None:
        """Free the name and mark its id deleted; the data stays. Unknown names are ignored."""

    async def recover(self, namespace_id: str, event: AuditEvent | None = None) -> bool:
        """Make a deleted namespace active again; return False when its name is taken or its status
        has changed."""

    async def purge(self, namespace_id: str, event: AuditEvent | None = None) -> int:
        """Delete all data of a deleted namespace and its record, and return how many records went.
        The event is recorded before anything is deleted: an interrupted purge has its event, and
        each of its repetitions. Raises `NamespaceStateError`, and deletes nothing,
        when the namespace is active."""


class Audit(Protocol):
    """The role of audit records, which are written by the changes that they report."""

    async def read(
        self, namespace_id: str, entity_id: str, limit: int, start_event_id: str | None
    ) -> list[AuditEvent]:
        """Return audit events, newest first, older than `start_event_id` if given. An event that
        cannot be read is left out, and a `StoredDataWarning` names it."""


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """A usage query chooses snapshots. At least one of entity and resource is given; times are ISO
    strings that compare with `window_start`, both inclusive."""

    entity_id: str | None = None
    resource: str | None = None
    window_type: WindowType | None = None
    start_time: str | None = None
    end_time: str | None = None


class Usage(Protocol):
    """The role of usage snapshots."""

    async def read(
        self, namespace_id: str, query: UsageQuery, limit: int, cursor: str | None
    ) -> tuple[list[UsageSnapshot], str | None]:
        """Return one page of snapshots, newest first. A snapshot that cannot be read is left out,
        and a `StoredDataWarning` names it. Usage that is counted between two pages makes no page
        repeat or leave out a snapshot of before."""

    async def summary(self, namespace_id: str, query: UsageQuery) -> UsageSummary:
        """Add up all snapshots that `read` returns, page after page. The records of one entity are
        read at the same time, those of different entities one after the other."""


class StreamedUsage(Usage, Protocol):
    """The role of usage snapshots where usage is counted by the reader of a stream of changes
    (`flows.stream`). A store that counts usage in its own writes needs no such role."""

    async def add(self, addition: UsageAddition) -> bool:
        """Count what the snapshot has not counted yet (`UsageAddition.beyond`) and remember up to
        which sequence it has, in one atomic step. Return whether there was anything to count. The
        call may be repeated after any failure, and may meet calls with parts of the same batch.
        Raises `StoredDataError` when the snapshot is damaged."""


class BucketImages(Protocol):
    """Bucket items as they were last seen, to plan the next write from."""

    @property
    def get(self) -> Callable[[BucketAddress], Bucket | None]:
        """Return the item at an address, if one was seen there."""

    def put(self, address: BucketAddress, bucket: Bucket, /) -> None:
        """Remember how the item looks now."""

    def discard(self, address: BucketAddress, /) -> None:
        """Remember that there is no item."""


@runtime_checkable
class RepositoryProtocol(Protocol):
    """A store consists of roles, and of a way to reach and to leave it."""

    @property
    def capabilities(self) -> BackendCapabilities:
        """The capabilities of the store."""

    @property
    def buckets(self) -> Buckets:
        """The role of bucket items."""

    @property
    def receipts(self) -> Receipts:
        """The role of receipts."""

    @property
    def configs(self) -> Configs:
        """The role of stored limits and behaviour."""

    @property
    def entities(self) -> Entities:
        """The role of entity records."""

    @property
    def namespaces(self) -> Namespaces:
        """The role of the registry of namespaces."""

    @property
    def audit(self) -> Audit:
        """The role of audit records."""

    @property
    def usage(self) -> Usage:
        """The role of usage snapshots."""

    async def ping(self) -> None:
        """Reach the store, or raise."""

    async def close(self) -> None:
        """Close the store. Closing twice does nothing. Calls that are made later raise
        `StoreClosed`."""


@runtime_checkable
class ShowsBuckets(Protocol):
    """An optional role: a store in this process shows its bucket items themselves, which are
    never stale. Without it, a process remembers images of its own."""

    @property
    def images(self) -> BucketImages:
        """The bucket items as they are."""


@runtime_checkable
class CountsTraffic(Protocol):
    """An optional role: a store outside this process's memory counts its calls."""

    def traffic(self) -> StoreTraffic:
        """Return the calls, requests, seconds and units so far."""


@runtime_checkable
class HasBreaker(Protocol):
    """An optional role: a store that refuses calls at once after several were not answered."""

    @property
    def breaker_state(self) -> str:
        """Return `closed`, `open` or `half-open`."""
