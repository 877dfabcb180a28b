"""A copy of a write that arrives late, after any number of other writes, changes nothing.

The proxy ends the connection of one request and keeps the request. The client finds out that its
write has not landed, and sends it again. Then the server gets the first copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.support.servers.chaos import Act, ChaosProxy, DeliverLate, Pass, Request
from tests.support.servers.tables import OwnTable
from zae_limiter import Limit, RateLimiter, Repository
from zae_limiter.backends.dynamodb.url import dynamodb_url
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.flows.shards.items import read_all, split_shard
from zae_limiter.testing import ManualClock

RPM = Limit.per_day("rpm", 1000)
TPM = Limit.per_day("tpm", 1000)


class Line:
    """A line to a table on which one request can be kept back."""

    def __init__(self, proxy: ChaosProxy, repository: Repository) -> None:
        self.proxy = proxy
        self.repository = repository
        self.limiter = RateLimiter(repository, default_limits=[RPM, TPM])
        self.late: DeliverLate | None = None

    def keep_back(self, operation: str) -> None:
        """Keep the next request of this kind back."""
        act = self.late = DeliverLate()
        chosen: list[Request] = []

        def choose(request: Request) -> Act:
            if request.operation == operation and not chosen:
                chosen.append(request)
                return act
            return Pass()

        self.proxy.use_for(choose)

    async def take(self, entity_id: str = "key", **amounts: int) -> None:
        async with self.limiter.acquire(entity_id, "gpt-4", amounts):
            pass

    async def fail(self, **amounts: int) -> None:
        """Take, and give back with a write of its own."""
        async with self.limiter.acquire("key", "gpt-4", amounts):
            self.keep_back("UpdateItem")
            raise ZeroDivisionError


@pytest.fixture
async def line(proxy: ChaosProxy, table: OwnTable) -> AsyncIterator[Line]:
    url = dynamodb_url(table.name, table.server.region, proxy.url)
    async with await Repository.open(url=url, clock=ManualClock()) as repository:
        made = Line(proxy, repository)
        await made.take(rpm=500, tpm=500)
        yield made
        proxy.use(())


async def refund(line: Line) -> None:
    with pytest.raises(ZeroDivisionError):
        await line.fail(rpm=100)


async def release(line: Line) -> None:
    async with line.limiter.acquire("key", "gpt-4", {"rpm": 100}) as lease:
        await lease.release(rpm=90)
        line.keep_back("UpdateItem")


async def correction(line: Line) -> None:
    async with line.limiter.acquire("key", "gpt-4", {"rpm": 100}) as lease:
        await lease.adjust(rpm=200)
        line.keep_back("UpdateItem")


async def both_ways(line: Line) -> None:
    async with line.limiter.acquire("key", "gpt-4", {"rpm": 100, "tpm": 100}) as lease:
        await lease.adjust(rpm=200, tpm=-90)
        line.keep_back("UpdateItem")


async def charge(line: Line) -> None:
    line.keep_back("UpdateItem")
    await line.take(rpm=100)


async def first_charge(line: Line) -> None:
    """By a client that has never seen the bucket."""
    line.limiter.repository.scope.local.images.discard(home(line))
    await charge(line)


async def refunds_together(line: Line) -> None:
    """Of several tasks, in one write."""

    async def fail(at: asyncio.Barrier) -> None:
        async with line.limiter.acquire("key", "gpt-4", {"rpm": 20}):
            await at.wait()
            if line.late is None:
                line.keep_back("UpdateItem")
            raise ZeroDivisionError

    barrier = asyncio.Barrier(8)
    outcomes = await asyncio.gather(*[fail(barrier) for _ in range(8)], return_exceptions=True)
    assert all(isinstance(outcome, ZeroDivisionError) for outcome in outcomes)


async def charges_together(line: Line) -> None:
    """By several tasks, in one write."""
    line.keep_back("UpdateItem")
    await asyncio.gather(*[line.take(rpm=50) for _ in range(8)])


async def levels_together(line: Line) -> None:
    """A key and its parent in one transaction."""
    await line.repository.create_entity("org")
    await line.repository.create_entity("child", parent_id="org", cascade=True)
    await line.take("child", rpm=400)
    await line.take("org", rpm=500)
    line.repository.scope.local.images.discard(home(line)._replace(entity_id="org"))
    line.keep_back("TransactWriteItems")
    await line.take("child", rpm=50)


async def shards_together(line: Line) -> None:
    """More than one shard has, from both in one transaction."""
    await split(line)
    line.keep_back("TransactWriteItems")
    await line.take(rpm=400)


async def a_split(line: Line) -> None:
    line.keep_back("TransactWriteItems")
    await split(line)


async def split(line: Line) -> None:
    scope = line.repository.scope
    found = await read_all(scope, home(line))
    await split_shard(scope, home(line), found[home(line)])


def home(line: Line) -> BucketAddress:
    return BucketAddress(line.repository.namespace_id, "key", "gpt-4")


KINDS: list[Callable[[Line], Awaitable[None]]] = [
    refund,
    release,
    correction,
    both_ways,
    charge,
    first_charge,
    refunds_together,
    charges_together,
    levels_together,
    shards_together,
    a_split,
]


@pytest.mark.parametrize(
    ("kind", "between"),
    [(refund, 30), *[(kind, 5) for kind in KINDS]],
    ids=lambda each: f"after {each} writes" if isinstance(each, int) else each.__name__,
)
async def test_a_copy_that_arrives_late_changes_nothing(
    kind: Callable[[Line], Awaitable[None]], between: int, line: Line, table: OwnTable
) -> None:
    await kind(line)
    assert line.late is not None
    line.proxy.use(())
    for _ in range(between):
        for entity_id in ("child",) if kind is levels_together else ("key",):
            await line.take(entity_id, tpm=1)
    before = table.dump()
    line.late.deliver()
    assert table.dump() == before
