"""One way to speak to every facade, so that each behaviour is tested once for all of them.

Tests are written against the asynchronous facade. The blocking one is made to look like
it: its methods do their work when they are awaited.
"""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from tests.support.servers.tables import OwnTable
from zae_limiter import (
    Lease,
    Limit,
    OnUnavailable,
    RateLimiter,
    Repository,
    SyncLease,
    SyncRateLimiter,
    SyncRepository,
)
from zae_limiter.backends.memory import MemoryStore
from zae_limiter.flows.acquire.wait_queue import WaitQueues
from zae_limiter.flows.config.cache import ConfigCache
from zae_limiter.flows.scope import MAX_IMAGES, Scope
from zae_limiter.local.bounded import Bounded
from zae_limiter.local.single_flight import SingleFlight
from zae_limiter.testing import ManualClock

Driver = Literal["asyncio", "blocking"]
StoreKind = Literal["memory", "sqlite", "dynamodb"]
EMBEDDED: tuple[StoreKind, ...] = ("memory", "sqlite")
"""Stores that count usage themselves, in the writes that make it."""
SHARED: tuple[StoreKind, ...] = ("sqlite", "dynamodb")
"""Stores whose URL, opened again, leads to the same data."""
ADMIN_DRIVERS: dict[StoreKind, Driver] = {
    "memory": "asyncio",
    "sqlite": "blocking",
    "dynamodb": "asyncio",
}
"""The driver that administers each store in tests of entities, configuration and namespaces.

Both drivers run the same coroutines there, and the conformance suite runs on each store by both.
"""

_TWINS: dict[type, type] = {
    SyncLease: Lease,
    SyncRateLimiter: RateLimiter,
    SyncRepository: Repository,
}


class Awaited:
    """A blocking object in the clothes of its asynchronous twin."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self._twin = _TWINS[type(inner)]

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if name == "acquire":
            return lambda *args, **options: _AwaitedContext(value(*args, **options))
        if inspect.iscoroutinefunction(getattr(self._twin, name, None)):
            return _awaited(value)
        return Awaited(value) if type(value) in _TWINS else value

    async def __aenter__(self) -> Any:
        self.inner.__enter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.inner.__exit__(*error)


class _AwaitedContext:
    """An `acquire` of the blocking facade, to be entered with `async with`."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aenter__(self) -> Any:
        return Awaited(self._inner.__enter__())

    async def __aexit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)


def _awaited(method: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*args: Any, **options: Any) -> Any:
        result = method(*args, **options)
        return Awaited(result) if type(result) in _TWINS else result

    return call


async def open_repository(
    driver: Driver, namespace: str | None = None, **options: Any
) -> Repository:
    """`Repository.open`, by either driver."""
    if driver == "asyncio":
        return await Repository.open(namespace, **options)
    return cast(Repository, Awaited(SyncRepository.open(namespace, **options)))


async def connect_repository(
    driver: Driver, namespace: str | None = None, **options: Any
) -> Repository:
    """`Repository.connect`, by either driver."""
    if driver == "asyncio":
        return await Repository.connect(namespace, **options)
    return cast(Repository, Awaited(SyncRepository.connect(namespace, **options)))


def limiter_on(repository: Repository, **options: Any) -> RateLimiter:
    """A limiter of the same driver."""
    if isinstance(repository, Awaited):
        return cast(RateLimiter, Awaited(SyncRateLimiter(repository.inner, **options)))
    return RateLimiter(repository, **options)


def stranger(repository: Repository, cache_ttl: float = 60) -> Repository:
    """The same namespace of the same store as another process would see it: nothing that
    is remembered here is known there."""
    inner: Any = repository.inner if isinstance(repository, Awaited) else repository
    local = replace(
        inner.scope.local,
        config_cache=ConfigCache(cache_ttl),
        config_reads=SingleFlight(),
        wait_queues=WaitQueues(),
        images=Bounded(MAX_IMAGES),
        doubted=Bounded(MAX_IMAGES),
        tentative=Bounded(MAX_IMAGES),
    )
    scope: Scope = replace(inner.scope, local=local)
    twin = type(inner).on_scope(scope, inner.namespace_name, owns_store=False)
    return cast(Repository, Awaited(twin)) if isinstance(repository, Awaited) else twin


@dataclass
class World:
    """A store, a driver, and a clock that stands still."""

    driver: Driver
    store: StoreKind
    place: Path | OwnTable
    clock: ManualClock = field(default_factory=ManualClock)
    opened: list[Repository] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """The file of a SQLite store."""
        assert isinstance(self.place, Path)
        return self.place / "limits.db"

    @property
    def url(self) -> str:
        if isinstance(self.place, OwnTable):
            return self.place.url
        return "memory://" if self.store == "memory" else f"sqlite:///{self.path}"

    @property
    def is_shared(self) -> bool:
        """Whether others that open the URL see the same data."""
        return self.store in SHARED

    @property
    def repository(self) -> Repository:
        """The one that was opened first."""
        return self.opened[0]

    @property
    def scope(self) -> Scope:
        return self.repository.scope

    async def open(self, namespace: str | None = None, **options: Any) -> Repository:
        """Open the store; with the same file or table, but never with the same memory."""
        repository = await open_repository(
            self.driver, namespace, **{"url": self.url, "clock": self.clock, **options}
        )
        self.opened.append(repository)
        return repository

    def limiter(self, **options: Any) -> RateLimiter:
        """A limiter on the first repository."""
        return limiter_on(self.repository, **options)

    def stranger(self, cache_ttl: float = 60) -> Repository:
        """The first repository's namespace, seen by another process."""
        return stranger(self.repository, cache_ttl)

    def dump(self) -> str:
        """Everything that is stored."""
        if isinstance(self.scope.store, MemoryStore):
            return repr(self.scope.store.buckets._tables)
        if isinstance(self.place, OwnTable):
            return self.place.dump()
        with closing(sqlite3.connect(self.path)) as db:
            return "\n".join(db.iterdump())

    async def close(self) -> None:
        for repository in self.opened:
            await repository.close()


async def take(
    limiter: RateLimiter,
    entity_id: str = "key-1",
    resource: str = "gpt-4",
    *,
    limits: list[Limit] | None = None,
    on_unavailable: OnUnavailable | None = None,
    **consume: int,
) -> Lease:
    """Acquire, and end the lease at once."""
    async with limiter.acquire(
        entity_id, resource, consume, limits, on_unavailable=on_unavailable
    ) as lease:
        return lease


async def balance(
    repository: Repository, entity_id: str = "key-1", resource: str = "gpt-4"
) -> dict[str, int]:
    """Millitokens as they are stored; empty when there is no bucket."""
    states = await repository.get_buckets(entity_id, resource)
    return {state.limit_name: state.tokens_milli for state in states}
