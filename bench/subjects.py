"""Who is measured, and what exactly one of its acquires does."""

from __future__ import annotations

from dataclasses import dataclass


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

    @property
    def is_peer(self) -> bool:
        """True when it runs in the environment of the peers."""
        return self.distribution != OURS


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


def _peer(name: str, label: str, adapter: str, distribution: str, algorithm: str) -> Subject:
    return Subject(
        name,
        label,
        f"bench.peers.{adapter}",
        distribution,
        algorithm,
        "1 each",
        "each",
        "no",
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

IN_MEMORY = (SYNC_MEMORY, THROTTLED, FIXED_WINDOW, MOVING_WINDOW, PYRATE_LOG, PYRATE_STATE)
