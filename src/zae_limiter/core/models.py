"""The records that users see: entities, limit states, usage, capacity, configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from .limit import Limit

OnUnavailableAction = Literal["allow", "block"]
ConfigSource = Literal["entity", "entity_default", "resource", "system"]
ConfigLevel = Literal["system", "resource", "entity"]


class OnUnavailable(Enum):
    """The two ways in which `acquire` may act while the store cannot answer."""

    ALLOW = "allow"
    BLOCK = "block"


@dataclass
class Entity:
    """Someone or something that is limited: a key, a project, an organisation."""

    id: str
    name: str | None = None
    parent_id: str | None = None
    cascade: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    created_at: str | None = None
    version: int = field(default=1, compare=False)

    @property
    def is_parent(self) -> bool:
        """True when the entity has no parent of its own."""
        return self.parent_id is None

    @property
    def is_child(self) -> bool:
        """True when the entity has a parent."""
        return self.parent_id is not None


@dataclass
class LimitStatus:
    """The status of one limit of one entity towards a request."""

    entity_id: str
    resource: str
    limit_name: str
    limit: Limit
    available: int
    requested: int
    exceeded: bool
    retry_after_seconds: float

    @property
    def deficit(self) -> int:
        """The number of tokens that were missing."""
        return max(0, self.requested - self.available)


@dataclass(frozen=True)
class LimiterConfig:
    """The configuration of one level. None means: not set at this level.

    Only the system level holds `on_unavailable`, `auto_update` and `strict_version`.
    `config_version` counts the changes of the record; it is never written by hand.
    `inherit` goes with the limits: they are merged by name with those of the next level, instead of
    replacing them.
    """

    limits: tuple[Limit, ...] | None = None
    on_unavailable: OnUnavailableAction | None = None
    auto_update: bool | None = None
    strict_version: bool | None = None
    config_version: int | None = field(default=None, compare=False)
    inherit: bool = False

    def __post_init__(self) -> None:
        if self.limits is not None:
            object.__setattr__(self, "limits", tuple(self.limits))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are set, JSON-ready."""
        limits = None if self.limits is None else [limit.to_dict() for limit in self.limits]
        said = {
            "limits": limits,
            "inherit": self.inherit or None,
            "on_unavailable": self.on_unavailable,
            "auto_update": self.auto_update,
            "strict_version": self.strict_version,
            "config_version": self.config_version,
        }
        return {key: value for key, value in said.items() if value is not None}


@dataclass
class UsageSnapshot:
    """The usage of one resource by one entity in one window."""

    entity_id: str
    resource: str
    window_start: str
    window_end: str
    window_type: str
    counters: dict[str, int]
    total_events: int


@dataclass
class UsageSummary:
    """The sum and the average of several snapshots."""

    snapshot_count: int
    total: dict[str, int]
    average: dict[str, float]
    min_window_start: str | None
    max_window_start: str | None


@dataclass(frozen=True, slots=True)
class BucketBalance:
    """The balance of one limit of one bucket, over all of its shards, in whole tokens."""

    entity_id: str
    resource: str
    limit_name: str
    capacity: int
    available: int
    consumed: int
    shards: int

    @property
    def used_pct(self) -> float:
        """How much of the capacity is gone; above 100 while in debt."""
        return (self.capacity - self.available) / self.capacity * 100 if self.capacity else 0.0


@dataclass
class EntityCapacity:
    """The part of a resource's capacity that one entity has."""

    entity_id: str
    capacity: int
    available: int
    utilization_pct: float


@dataclass
class ResourceCapacity:
    """The capacity of one limit of a resource, over all entities that have a bucket."""

    resource: str
    limit_name: str
    total_capacity: int
    total_available: int
    utilization_pct: float
    entities: list[EntityCapacity]


@dataclass(frozen=True)
class BackendCapabilities:
    """The capabilities of a store."""

    supports_audit_logging: bool = False
    supports_usage_snapshots: bool = False
    supports_infrastructure_management: bool = False
    supports_change_streams: bool = False
    supports_batch_operations: bool = False


@dataclass
class CacheStats:
    """Hits and misses of the configuration cache, and the number of refusals without a call.

    `breaker`: whether calls to the store are made (`closed`), or refused because it does not answer
    (`open`, or `half-open` while one caller asks again).
    """

    hits: int = 0
    misses: int = 0
    size: int = 0
    ttl_seconds: float = 0
    local_rejections: int = 0
    breaker: str = "closed"

    def as_dict(self) -> dict[str, float]:
        """Return the numbers, JSON-ready."""
        return {
            "hits": self.hits,
            "misses": self.misses,
            "size": self.size,
            "ttl": self.ttl_seconds,
            "local_rejections": self.local_rejections,
        }
