"""A crowd: many callers of one process at a slow store, so that their writes meet."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

from tests.support.drivers import Awaited, Driver, limiter_on, open_repository
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository
from zae_limiter.core.bucket import Bucket, BucketAddress
from zae_limiter.core.writes import Outcome, Write
from zae_limiter.flows.config.cache import ConfigCache
from zae_limiter.flows.scope import LocalState, Scope
from zae_limiter.ports.repository_protocol import Buckets, RepositoryProtocol
from zae_limiter.runtime.asyncio_driver import hold
from zae_limiter.runtime.blocking import run
from zae_limiter.testing import ManualClock

Work = Coroutine[Any, Any, Any]
Addressed = tuple[BucketAddress, Write]
Hook = Callable[[BucketAddress, Write], Awaitable[None]]


class Gate:
    """A gate holds up tasks or threads while it is closed."""

    def __init__(self, driver: Driver) -> None:
        self._event = asyncio.Event() if driver == "asyncio" else threading.Event()
        self._event.set()
        self.open = self._event.set
        self.close = self._event.clear

    async def passed(self) -> None:
        """Wait until the gate is open, cancelled or not, as calls of a store do."""
        if isinstance(self._event, threading.Event):
            self._event.wait()
        elif not self._event.is_set():
            await hold(asyncio.ensure_future(self._event.wait()))


class SlowBuckets:
    """Slow buckets are bucket items behind a gate, with a list of all writes.

    The gate is for all entities, or for those in `gate_for`. `before` and `after` are called around
    each write; their exceptions stand for the store's.
    """

    def __init__(self, inner: Buckets, gate: Gate) -> None:
        self._inner = inner
        self.gate = gate
        self.writes: list[Addressed] = []
        self.reads = 0
        self.under_way: Counter[BucketAddress] = Counter()
        self.most_under_way = 0
        self.gate_for: set[str] = set()
        self.before: Hook | None = None
        self.after: Hook | None = None

    @property
    def metered(self) -> bool:
        return self._inner.metered

    def written(self, entity_id: str = "key-1") -> int:
        """How often an entity's bucket was written to."""
        return sum(address.entity_id == entity_id for address, _ in self.writes)

    async def write(self, address: BucketAddress, write: Write) -> Outcome:
        return (await self._carry_out([(address, write)]))[0]

    async def write_all(self, writes: Sequence[Addressed]) -> list[Outcome]:
        return await self._carry_out(writes)

    async def _carry_out(self, writes: Sequence[Addressed]) -> list[Outcome]:
        self.writes += writes
        self.under_way.update(address for address, _ in writes)
        self.most_under_way = max(self.most_under_way, *self.under_way.values())
        try:
            if not self.gate_for or writes[0][0].entity_id in self.gate_for:
                await self.gate.passed()
            await self._call(self.before, writes)
            outcomes = await self._write(writes)
            await self._call(self.after, writes)
            return outcomes
        finally:
            self.under_way.subtract(address for address, _ in writes)

    async def _call(self, hook: Hook | None, writes: Sequence[Addressed]) -> None:
        for address, write in writes if hook else ():
            assert hook is not None
            await hook(address, write)

    async def _write(self, writes: Sequence[Addressed]) -> list[Outcome]:
        if len(writes) == 1:
            return [await self._inner.write(*writes[0])]
        return await self._inner.write_all(writes)

    async def fence(self, address: BucketAddress, operation: str) -> Bucket | None:
        self.reads += 1
        return await self._inner.fence(address, operation)

    async def read(self, addresses: Sequence[BucketAddress]) -> dict[BucketAddress, Bucket]:
        self.reads += 1
        return await self._inner.read(addresses)

    async def of_entity(self, namespace_id: str, entity_id: str) -> dict[BucketAddress, Bucket]:
        return await self._inner.of_entity(namespace_id, entity_id)

    async def of_resource(self, namespace_id: str, resource: str) -> dict[BucketAddress, Bucket]:
        return await self._inner.of_resource(namespace_id, resource)

    async def of_resource_after(
        self, namespace_id: str, resource: str, cursor: str | None
    ) -> tuple[dict[BucketAddress, Bucket], str | None]:
        return await self._inner.of_resource_after(namespace_id, resource, cursor)

    async def of_namespace_after(
        self, namespace_id: str, cursor: str | None
    ) -> tuple[dict[BucketAddress, Bucket], str | None]:
        return await self._inner.of_namespace_after(namespace_id, cursor)


class SlowStore:
    """A store whose buckets are slow."""

    def __init__(self, inner: RepositoryProtocol, buckets: SlowBuckets) -> None:
        self._inner = inner
        self.buckets = buckets

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@dataclass
class Crowd:
    """A crowd is a process: its repository, on a slow store, and callers that are tasks or
    threads."""

    driver: Driver
    clock: ManualClock
    repository: Repository
    buckets: SlowBuckets
    origin: Repository
    calls: list[asyncio.Future[Any]] = field(default_factory=list)

    @property
    def scope(self) -> Scope:
        return self.repository.scope

    @property
    def limiter(self) -> RateLimiter:
        return limiter_on(self.repository)

    def home(self, entity_id: str = "key-1") -> BucketAddress:
        """Where the entity's bucket is."""
        return BucketAddress(self.scope.namespace_id, entity_id, "gpt-4")

    async def bucket(self, entity_id: str = "key-1") -> Bucket:
        """The bucket as it is stored."""
        home = self.home(entity_id)
        return (await self.origin.scope.store.buckets.read([home]))[home]

    async def tokens(self, name: str = "rpm", entity_id: str = "key-1") -> int:
        """Millitokens as they are stored."""
        return (await self.bucket(entity_id)).cells[name].tokens_milli

    def other(self) -> RateLimiter:
        """Another process at the same store, which is not slow for it."""
        return limiter_on(_twin(self.origin, _as_another(self.origin.scope)))

    def in_line(self, address: BucketAddress | None = None) -> int:
        """Return how many callers wait for an item."""
        return in_line(self.scope, address or self.home())

    def call(self, work: Work) -> asyncio.Future[Any]:
        """Begin a call, as a task or in a thread of its own."""
        begun = asyncio.ensure_future(work) if self.driver == "asyncio" else in_thread(work)
        self.calls.append(begun)
        return begun

    async def at_gate(
        self, work: Work, address: BucketAddress | None = None
    ) -> asyncio.Future[Any]:
        """Close the gate, begin a call, and return once its write is under way, if it makes one."""
        self.buckets.gate.close()
        return (await self.behind(work, address=address))[0]

    async def behind(
        self, *works: Work, address: BucketAddress | None = None
    ) -> list[asyncio.Future[Any]]:
        """Begin calls one after the other, each once the call before it is queued, or has its write
        under way, or needed none."""
        begun: list[asyncio.Future[Any]] = []
        at = address or self.home()
        for work in works:
            before = self.in_line(at) + self.buckets.under_way[at]
            begun.append(self.call(work))
            await until(
                lambda before=before: (  # type: ignore[misc]
                    begun[-1].done() or self.in_line(at) + self.buckets.under_way[at] > before
                )
            )
        return begun

    async def meet(self, *works: Work) -> list[Any]:
        """Let the first call write alone and the others queue behind it; return the outcome of
        each."""
        begun = [await self.at_gate(works[0]), *await self.behind(*works[1:])]
        self.buckets.gate.open()
        return await asyncio.gather(*begun, return_exceptions=True)


def in_line(scope: Scope, address: BucketAddress) -> int:
    """Return how many callers of a process wait for an item."""
    return len(scope.local.write_queues._queues.get(address, ()))


def in_thread(work: Work) -> asyncio.Future[Any]:
    """Run blocking work in a thread of its own."""
    future: Future[Any] = Future()

    def target() -> None:
        try:
            future.set_result(run(work))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=target, daemon=True).start()
    return asyncio.wrap_future(future)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that has no event."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.0005)


def _twin(repository: Repository, scope: Scope) -> Repository:
    inner: Any = repository.inner if isinstance(repository, Awaited) else repository
    twin = type(inner).on_scope(scope, inner.namespace_name, owns_store=False)
    return cast(Repository, Awaited(twin)) if isinstance(repository, Awaited) else twin


def _as_another(scope: Scope) -> Scope:
    return replace(scope, local=LocalState(ConfigCache(60)))


@asynccontextmanager
async def crowd(
    driver: Driver, url: str, limits: Sequence[Limit] = (), **options: Any
) -> AsyncIterator[Crowd]:
    """A process at a new store, with these limits for everything."""
    clock = options.setdefault("clock", ManualClock())
    origin = await open_repository(driver, url=url, **options)
    scope = origin.scope
    buckets = SlowBuckets(scope.store.buckets, Gate(driver))
    slow = cast(RepositoryProtocol, SlowStore(scope.store, buckets))
    made = Crowd(driver, clock, _twin(origin, replace(scope, store=slow)), buckets, origin)
    if limits:
        await made.limiter.set_system_defaults(list(limits))
    try:
        yield made
        assert not made.scope.local.write_queues._owners, "an item was left taken"
    finally:
        buckets.gate.open()
        await asyncio.wait([*made.calls, asyncio.ensure_future(asyncio.sleep(0))], timeout=10)
        await origin.close()


async def take(limiter: RateLimiter, entity_id: str = "key-1", **amounts: int) -> bool:
    """Acquire and end at once: whether it was admitted."""
    try:
        async with limiter.acquire(entity_id, "gpt-4", amounts):
            return True
    except RateLimitExceeded:
        return False


async def wait_of(limiter: RateLimiter, entity_id: str = "key-1", **amounts: int) -> float:
    """Acquire and end at once: 0 when it was admitted, else how long to wait, in seconds."""
    try:
        async with limiter.acquire(entity_id, "gpt-4", amounts):
            return 0
    except RateLimitExceeded as refused:
        return refused.retry_after_seconds
