"""What a store must be able to do, in small roles. Values are the domain's own.

Contracts that hold for every method:
- It either takes effect as a whole or raises and has no effect, unless it raises
  `StorageUnavailable` with `ambiguous` set.
- Failures of the store are raised as `StorageUnavailable`, records that cannot be read as
  `StoredDataError` unless a method says otherwise. Anything else is a bug and surfaces as
  it is.
- Ids and names were checked before they came here.

`zae_limiter.testing.conformance` checks these contracts on any store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..core.audit import AuditEvent
from ..core.bucket import Bucket, BucketAddress
from ..core.hierarchy import ConfigSlot
from ..core.models import BackendCapabilities, Entity, LimiterConfig, UsageSnapshot
from ..core.windows import WindowType
from ..core.writes import Outcome, Write


class Buckets(Protocol):
    """Bucket items. The consumption of each write is counted as usage in the same step, or by
    whoever reads the store's stream of changes."""

    @property
    def metered(self) -> bool:
        """Whether an item can only be written so often. If so, buckets count their writes, and
        one that is written too often is split into shards."""

    async def write(self, address: BucketAddress, write: Write) -> Outcome:
        """Carry out `core.apply.apply` on the item, atomically."""

    async def write_all(self, writes: Sequence[tuple[BucketAddress, Write]]) -> list[Outcome]:
        """Carry out writes on different items, all or none. When none is carried out, outcomes
        other than `Granted` say why; `Granted` then means: this one could have been."""

    async def read(self, addresses: Sequence[BucketAddress]) -> dict[BucketAddress, Bucket]:
        """The items that exist, as of the last write that was answered."""

    async def of_entity(self, namespace_id: str, entity_id: str) -> dict[BucketAddress, Bucket]:
        """Every bucket item of an entity. What cannot be read is left out, and a
        `StoredDataWarning` names it."""

    async def of_resource(self, namespace_id: str, resource: str) -> dict[BucketAddress, Bucket]:
        """Every bucket item of a resource, in the same way."""


@dataclass(frozen=True, slots=True)
class ConfigPage:
    """What one read of configuration brought: only what exists is there."""

    configs: Mapping[ConfigSlot, LimiterConfig] = field(default_factory=dict)
    entity: Entity | None = None


class Configs(Protocol):
    """Stored limits and behaviour, one record for each slot."""

    async def read(
        self, namespace_id: str, slots: Sequence[ConfigSlot], entity_id: str | None = None
    ) -> ConfigPage:
        """Several slots, and an entity on the way, in one call."""

    async def entities_with_records(self, namespace_id: str, at_most: int) -> frozenset[str] | None:
        """The entities that have any record of their own: a configuration, or what is known of
        the entity itself. None if there are more, or if it is no trouble to ask for each."""

    async def write(
        self, namespace_id: str, slot: ConfigSlot, change: LimiterConfig, event: AuditEvent
    ) -> int:
        """Set the fields that are not None and keep the others. Counts `config_version` up by
        one, also over a deletion, and returns it. The event is recorded in the same step."""

    async def delete(self, namespace_id: str, slot: ConfigSlot, event: AuditEvent) -> bool:
        """Forget what the slot says. The event is recorded only if it said something."""

    async def entities_with_limits(
        self, namespace_id: str, resource: str, limit: int | None, cursor: str | None
    ) -> tuple[list[str], str | None]:
        """Ids of entities with limits of their own for a resource, sorted, one page."""

    async def resources_with_entity_limits(self, namespace_id: str) -> list[str]:
        """Resources for which some entity has limits of its own, sorted."""

    async def resources_with_defaults(self, namespace_id: str) -> list[str]:
        """Resources that have defaults, sorted."""


class Entities(Protocol):
    """Entity records."""

    async def create(self, namespace_id: str, entity: Entity, event: AuditEvent) -> bool:
        """Store a new entity with its event; False, and nothing stored, when the id is taken."""

    async def read(self, namespace_id: str, entity_id: str) -> Entity | None:
        """The entity, if there is one."""

    async def update(
        self, namespace_id: str, entity: Entity, expected_version: int, event: AuditEvent
    ) -> Entity | None:
        """Replace name and metadata if the stored version is the expected one, and count the
        version up. None, and nothing changed, when it is not or the entity is gone."""

    async def delete(self, namespace_id: str, entity_id: str, event: AuditEvent) -> int:
        """Delete the entity, its configuration, usage and buckets; audit records stay.

        Returns how many records went; the event is recorded with `records_deleted`, unless
        there were none.
        """

    async def children(self, namespace_id: str, parent_id: str) -> list[Entity]:
        """Entities with this parent, sorted by id."""


@dataclass(frozen=True, slots=True)
class NamespaceRecord:
    """A registered name and the opaque id that its data is stored under."""

    name: str
    namespace_id: str
    created_at: str
    status: str = "active"
    deleted_at: str | None = None


class Namespaces(Protocol):
    """The registry of namespaces."""

    async def register(self, record: NamespaceRecord) -> NamespaceRecord:
        """Store the record, or return the active one that has the name already."""

    async def read(self, name: str) -> NamespaceRecord | None:
        """The active namespace of this name."""

    async def read_id(self, namespace_id: str) -> NamespaceRecord | None:
        """The namespace of this id, whatever its status."""

    async def active(self) -> list[NamespaceRecord]:
        """All active namespaces, sorted by name."""

    async def orphans(self) -> list[NamespaceRecord]:
        """Namespaces that were deleted and not yet purged."""

    async def delete(self, name: str, deleted_at: str) -> None:
        """Free the name and mark its id deleted; the data stays. Unknown names are ignored."""

    async def recover(self, namespace_id: str) -> bool:
        """Make a deleted namespace active again; False when its name is taken or its status
        has changed."""

    async def purge(self, namespace_id: str) -> int:
        """Delete all data of a deleted namespace and its record, and count what went. Can be
        called again after it was interrupted. Raises `NamespaceStateError`, and deletes nothing,
        when the namespace is active."""


class Audit(Protocol):
    """Audit records. They are written by the changes they tell of."""

    async def read(
        self, namespace_id: str, entity_id: str, limit: int, start_event_id: str | None
    ) -> list[AuditEvent]:
        """Newest first, older than `start_event_id` if given."""


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """Which snapshots are wanted. At least one of entity and resource is given; times are
    ISO strings that compare with `window_start`, both inclusive."""

    entity_id: str | None = None
    resource: str | None = None
    window_type: WindowType | None = None
    start_time: str | None = None
    end_time: str | None = None


class Usage(Protocol):
    """Usage snapshots."""

    async def read(
        self, namespace_id: str, query: UsageQuery, limit: int, cursor: str | None
    ) -> tuple[list[UsageSnapshot], str | None]:
        """Newest first, one page."""


class RepositoryProtocol(Protocol):
    """A store: its roles, and how it is reached and left."""

    @property
    def capabilities(self) -> BackendCapabilities:
        """What it can do."""

    @property
    def buckets(self) -> Buckets:
        """Bucket items."""

    @property
    def configs(self) -> Configs:
        """Stored limits and behaviour."""

    @property
    def entities(self) -> Entities:
        """Entity records."""

    @property
    def namespaces(self) -> Namespaces:
        """The registry of namespaces."""

    @property
    def audit(self) -> Audit:
        """Audit records."""

    @property
    def usage(self) -> Usage:
        """Usage snapshots."""

    async def ping(self) -> None:
        """Reach the store, or raise."""

    async def close(self) -> None:
        """Let go of it. Closing twice does nothing."""
