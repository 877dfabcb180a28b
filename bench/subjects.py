"""Who is measured, and what exactly one of its acquires does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Environment = Literal["ours", "peers", "existing"]
"""Where it runs: in ours, with the other limiters, or with zae-limiter 0.17.0."""

Store = Literal["", "dynamodb", "redis"]
"""The server that it needs, if any."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A limiter and a way to use it.

    `calls`: how several limits are charged, by one call or by one each. `atomic`: whether all
    of them are charged or none, or each for itself. `refund`: whether a charge can be given
    back.
    """

    name: str
    label: str
    adapter: str
    distribution: str
    algorithm: str
    calls: str
    atomic: str
    refund: str
    environment: Environment = "ours"
    store: Store = ""

    @property
    def is_peer(self) -> bool:
        """True when it is somebody else's."""
        return self.environment != "ours"


OURS = "zae-limiter"


def _ours(name: str, label: str, adapter: str) -> Subject:
    return Subject(
        f"{OURS}-{name}",
        f"zae-limiter, {label}",
        f"bench.ours:{adapter}",
        OURS,
        "token bucket",
        "1",
        "all",
        "yes",
    )


def _dynamodb(name: str, label: str, adapter: str, environment: Environment = "ours") -> Subject:
    return Subject(
        name,
        label,
        f"bench.{adapter}",
        OURS,
        "token bucket",
        "1",
        "all",
        "yes",
        environment,
        "dynamodb",
    )


def on_dynamodb(adapter: str) -> Sequence[Subject]:
    """The ways to use zae-limiter there, by tasks (`Async`) or by threads (`Threads`)."""
    name = f"dynamodb:{adapter}"
    return (
        _dynamodb(OURS, "zae-limiter", name),
        _dynamodb(f"{OURS}-plain", "zae-limiter, one by one", f"{name}Plain"),
        _dynamodb(f"{OURS}-botocore", "zae-limiter, botocore", f"{name}Botocore"),
        _dynamodb(f"{OURS}-0.17.0", "zae-limiter 0.17.0", f"{name}Existing", "existing"),
    )


def in_configs(adapter: str) -> Sequence[Subject]:
    """This zae-limiter and 0.17.0, where they look for limits."""
    name = f"configs:{adapter}"
    return (
        _dynamodb(OURS, "zae-limiter", name),
        _dynamodb(f"{OURS}-0.17.0", "zae-limiter 0.17.0", f"{name}Existing", "existing"),
    )


def on_redis(adapter: str) -> Sequence[Subject]:
    """The others there, by tasks (`Async`) or by threads (`Threads`)."""
    return (
        _redis("limits", "limits_redis", adapter, "fixed window"),
        _redis("pyrate-limiter", "pyrate_redis", adapter, "token bucket"),
        _redis("throttled-py", "throttled_redis", adapter, "token bucket"),
    )


def _peer(
    name: str, label: str, adapter: str, distribution: str, algorithm: str, store: Store = ""
) -> Subject:
    return Subject(
        name,
        label,
        f"bench.peers.{adapter}",
        distribution,
        algorithm,
        "1 each",
        "each",
        "no",
        "peers",
        store,
    )


def _redis(distribution: str, module: str, adapter: str, algorithm: str) -> Subject:
    return _peer(
        f"{distribution}-redis",
        f"{distribution}, Redis",
        f"{module}:{adapter}",
        distribution,
        algorithm,
        "redis",
    )


def _pyrate(name: str, label: str, adapter: str, algorithm: str) -> Subject:
    return _peer(
        f"pyrate-limiter-{name}",
        f"pyrate-limiter, {label}",
        f"pyrate_limiter:{adapter}",
        "pyrate-limiter",
        algorithm,
    )


SYNC_MEMORY = _ours("sync", "sync", "SyncMemory")
ASYNC_MEMORY = _ours("async", "async", "AsyncMemory")
SYNC_SQLITE = _ours("sync", "sync", "SyncSqlite")
ASYNC_SQLITE = _ours("async", "async", "AsyncSqlite")
ONE_BY_ONE = _ours("one-by-one", "coalesce=False", "AsyncSqliteOneByOne")

THROTTLED = _peer(
    "throttled-py", "throttled-py", "throttled:TokenBucket", "throttled-py", "token bucket"
)
FIXED_WINDOW = _peer(
    "limits-fixed", "limits, fixed window", "limits:FixedWindow", "limits", "fixed window"
)
MOVING_WINDOW = _peer(
    "limits-moving", "limits, moving window", "limits:MovingWindow", "limits", "log"
)
PYRATE_LOG = _pyrate("log", "in memory", "SlidingLog", "log")
PYRATE_STATE = _pyrate("state", "token bucket", "TokenBucket", "token bucket")
PYRATE_SQLITE = _pyrate("sqlite", "rollback journal", "Sqlite", "log")
PYRATE_LOCKED = _pyrate("locked", "file lock, WAL", "LockedSqlite", "log")
PYRATE_WAITING = _pyrate("waiting", "file lock, WAL", "WaitingSqlite", "log")

BARE = _dynamodb("bare", "UpdateItem alone, no limiter", "bare:Bare")

IN_MEMORY = (SYNC_MEMORY, THROTTLED, FIXED_WINDOW, MOVING_WINDOW, PYRATE_LOG, PYRATE_STATE)
