"""Distributed token-bucket rate limits: exact, one round trip, several limits per call.

The public names are all here; `docs/glossary.md` has the nouns. To read the code, begin with `core`
(values and functions), then `ports`, `flows`, `runtime` and `backends`; the facades (`limiter`,
`repository`, `lease`) come last and only forward to flows.

Limiters and repositories are imported when they are first asked for: a program that needs only
values and errors, as a Lambda does, starts in a third of the time.
"""

import importlib
import typing

from ._version import __version__
from .core.audit import AuditAction, AuditEvent
from .core.deployed import LimiterInfo, Status
from .core.exceptions import (
    EntityError,
    EntityExistsError,
    EntityNotFoundError,
    EntityVersionError,
    IdempotencyKeyError,
    IncompatibleSchemaError,
    InfrastructureError,
    InfrastructureNotFoundError,
    InvalidIdentifierError,
    InvalidLimitError,
    InvalidModeError,
    InvalidNameError,
    LeaseExpiredError,
    ManifestConflictError,
    ManifestError,
    NamespaceNotFoundError,
    NamespaceStateError,
    RateLimitError,
    RateLimiterUnavailable,
    StackAlreadyExistsError,
    StackOperationError,
    StorageUnavailable,
    StoreConfigurationError,
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
    BucketBalance,
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
from .core.stats import LimiterStats, StoreTraffic

if typing.TYPE_CHECKING:
    from .core.events import AcquireEvent, AcquireOutcome, LostWrite
    from .flows.config.cache import ConfigCache as SyncConfigCache
    from .infra.options import StackOptions
    from .infra.stack_manager import StackManager
    from .infra.sync_stack_manager import SyncStackManager
    from .lease import Lease, SyncLease
    from .limiter import RateLimiter
    from .ports.listener import Listener
    from .ports.repository_protocol import RepositoryProtocol
    from .ports.repository_protocol import RepositoryProtocol as SyncRepositoryProtocol
    from .repository import Repository, RepositoryBuilder
    from .sync_limiter import SyncRateLimiter
    from .sync_repository import SyncRepository, SyncRepositoryBuilder
else:
    # A type checker that saw this would take any name for one of the package's.
    def __getattr__(name):
        """Import a name that is imported later."""
        if name not in _IMPORTED_LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, _, attribute = _IMPORTED_LATER[name].partition(":")
        value = getattr(importlib.import_module(f".{module}", __name__), attribute)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# Both interfaces share one protocol of stores and one configuration cache.
_IMPORTED_LATER = {
    "AcquireEvent": "core.events:AcquireEvent",
    "AcquireOutcome": "core.events:AcquireOutcome",
    "Lease": "lease:Lease",
    "Listener": "ports.listener:Listener",
    "LostWrite": "core.events:LostWrite",
    "RateLimiter": "limiter:RateLimiter",
    "Repository": "repository:Repository",
    "RepositoryBuilder": "repository:RepositoryBuilder",
    "RepositoryProtocol": "ports.repository_protocol:RepositoryProtocol",
    "StackManager": "infra.stack_manager:StackManager",
    "StackOptions": "infra.options:StackOptions",
    "SyncConfigCache": "flows.config.cache:ConfigCache",
    "SyncLease": "lease:SyncLease",
    "SyncRateLimiter": "sync_limiter:SyncRateLimiter",
    "SyncRepository": "sync_repository:SyncRepository",
    "SyncRepositoryBuilder": "sync_repository:SyncRepositoryBuilder",
    "SyncRepositoryProtocol": "ports.repository_protocol:RepositoryProtocol",
    "SyncStackManager": "infra.sync_stack_manager:SyncStackManager",
}

__all__ = [
    "AcquireEvent",
    "AcquireOutcome",
    "AuditAction",
    "AuditEvent",
    "BackendCapabilities",
    "BucketBalance",
    "BucketState",
    "CacheStats",
    "ConfigSource",
    "Entity",
    "EntityCapacity",
    "EntityError",
    "EntityExistsError",
    "EntityNotFoundError",
    "EntityVersionError",
    "IdempotencyKeyError",
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
    "LimiterInfo",
    "LimiterStats",
    "Listener",
    "LostWrite",
    "ManifestConflictError",
    "ManifestError",
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
    "StackManager",
    "StackOperationError",
    "StackOptions",
    "Status",
    "StorageUnavailable",
    "StoreConfigurationError",
    "StoreTraffic",
    "StoredDataError",
    "StoredDataWarning",
    "SyncConfigCache",
    "SyncLease",
    "SyncRateLimiter",
    "SyncRepository",
    "SyncRepositoryBuilder",
    "SyncRepositoryProtocol",
    "SyncStackManager",
    "UsageSnapshot",
    "UsageSummary",
    "ValidationError",
    "VersionError",
    "VersionMismatchError",
    "ZAELimiterError",
    "__version__",
]
