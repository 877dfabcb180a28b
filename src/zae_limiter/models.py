"""The records that users see, for imports by path."""

from .core.audit import AuditAction, AuditEvent
from .core.deployed import LimiterInfo, Status
from .core.limit import BucketState, Limit, LimitName
from .core.models import (
    BackendCapabilities,
    CacheStats,
    ConfigSource,
    Entity,
    EntityCapacity,
    LimiterConfig,
    LimitStatus,
    OnUnavailable,
    OnUnavailableAction,
    ResourceCapacity,
    UsageSnapshot,
    UsageSummary,
)
from .core.validation import validate_identifier, validate_resource
from .infra.options import StackOptions

__all__ = [
    "AuditAction",
    "AuditEvent",
    "BackendCapabilities",
    "BucketState",
    "CacheStats",
    "ConfigSource",
    "Entity",
    "EntityCapacity",
    "Limit",
    "LimitName",
    "LimitStatus",
    "LimiterConfig",
    "LimiterInfo",
    "OnUnavailable",
    "OnUnavailableAction",
    "ResourceCapacity",
    "StackOptions",
    "Status",
    "UsageSnapshot",
    "UsageSummary",
    "validate_identifier",
    "validate_resource",
]
