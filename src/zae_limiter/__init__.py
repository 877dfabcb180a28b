"""Distributed token-bucket rate limits: exact, one round trip, several limits per call.

The public names are all here; `docs/glossary.md` has the nouns. To read the code, begin with `core`
(values and functions), then `ports`, `flows`, `runtime` and `backends`; the facades (`limiter`,
`repository`, `lease`) come last and only forward to flows.
"""

from ._version import __version__
from .core.audit import AuditAction, AuditEvent
from .core.exceptions import (
    EntityError,
    EntityExistsError,
    EntityNotFoundError,
    EntityVersionError,
    IncompatibleSchemaError,
    InfrastructureError,
    InfrastructureNotFoundError,
    InvalidIdentifierError,
    InvalidLimitError,
    InvalidModeError,
    InvalidNameError,
    LeaseExpiredError,
    NamespaceNotFoundError,
    NamespaceStateError,
    RateLimitError,
    RateLimiterUnavailable,
    StackAlreadyExistsError,
    StackOperationError,
    StorageUnavailable,
    StoredDataError,
    StoredDataWarning,
    ValidationError,
    VersionError,
    VersionMismatchError,
    ZAELimiterError,
)
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
from .core.rate_limit_exceeded import RateLimitExceeded
from .flows.config.cache import ConfigCache as SyncConfigCache
from .lease import Lease, SyncLease
from .limiter import RateLimiter
from .ports.repository_protocol import RepositoryProtocol
from .repository import Repository, RepositoryBuilder
from .sync_limiter import SyncRateLimiter
from .sync_repository import SyncRepository, SyncRepositoryBuilder

# Both interfaces share one protocol of stores and one configuration cache.
SyncRepositoryProtocol = RepositoryProtocol

__all__ = [
    "AuditAction",
    "AuditEvent",
    "BackendCapabilities",
    "BucketState",
    "CacheStats",
    "ConfigSource",
    "Entity",
    "EntityCapacity",
    "EntityError",
    "EntityExistsError",
    "EntityNotFoundError",
    "EntityVersionError",
    "IncompatibleSchemaError",
    "InfrastructureError",
    "InfrastructureNotFoundError",
    "InvalidIdentifierError",
    "InvalidLimitError",
    "InvalidModeError",
    "InvalidNameError",
    "Lease",
    "LeaseExpiredError",
    "Limit",
    "LimitName",
    "LimitStatus",
    "LimiterConfig",
    "NamespaceNotFoundError",
    "NamespaceStateError",
    "OnUnavailable",
    "OnUnavailableAction",
    "RateLimitError",
    "RateLimitExceeded",
    "RateLimiter",
    "RateLimiterUnavailable",
    "Repository",
    "RepositoryBuilder",
    "RepositoryProtocol",
    "ResourceCapacity",
    "StackAlreadyExistsError",
    "StackOperationError",
    "StorageUnavailable",
    "StoredDataError",
    "StoredDataWarning",
    "SyncConfigCache",
    "SyncLease",
    "SyncRateLimiter",
    "SyncRepository",
    "SyncRepositoryBuilder",
    "SyncRepositoryProtocol",
    "UsageSnapshot",
    "UsageSummary",
    "ValidationError",
    "VersionError",
    "VersionMismatchError",
    "ZAELimiterError",
    "__version__",
]
