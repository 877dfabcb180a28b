"""A request is not refused for tokens that another client holds and is about to give back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.support.drivers import World, limiter_on, take
from zae_limiter import Limit, RateLimitExceeded, Repository
from zae_limiter.flows.acquire.acquire import undo
from zae_limiter.flows.acquire.charge import Progress
from zae_limiter.flows.acquire.item import take_from_item
from zae_limiter.flows.acquire.request import make_request, plan_charges
from zae_limiter.flows.shards.items import read_all, split_shard

MONTHLY = Limit.custom("t", capacity=10, refill_amount=1, refill_period_seconds=30 * 86400)


class Holder:
    """A client that charges all of the parent's tokens for a request which its child refuses."""

    def __init__(self, repository: Repository) -> None:
        self.scope = repository.scope
        self.charges: list[Progress] = []

    async def hold(self, amount: int, *, is_tentative: bool = True) -> None:
        request = make_request("org", "gpt-4", {"t": amount})
        charge = (await plan_charges(self.scope, request))[0]._replace(is_leaf=False)
        now_ms = self.scope.io.now_ms()
        progress = Progress(charge, charge.home, now_ms, is_tentative=is_tentative)
        await take_from_item(self.scope, progress)
        assert progress.entries
        self.charges.append(progress)

    async def give_back(self) -> None:
        await undo(self.scope, self.charges)
        self.charges = []


class Pause:
    """The pause of a client, in which something happens elsewhere."""

    def __init__(self, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self.meanwhile = meanwhile
        self.count = 0

    def signal(self) -> Pause:
        return self

    async def wait(self, timeout_s: float | None, *, for_store: bool = False) -> bool:
        self.count += 1
        await self.meanwhile()
        return False


@pytest.fixture
async def holder(world: World) -> Holder:
    await world.repository.set_system_defaults([MONTHLY])
    await world.repository.create_entity("org")
    await world.repository.create_entity("key", parent_id="org", cascade=True)
    return Holder(world.stranger())


@pytest.fixture
def pause(world: World, holder: Holder, monkeypatch: pytest.MonkeyPatch) -> Pause:
    made = Pause(holder.give_back)
    monkeypatch.setattr(world.scope.io, "signal", made.signal)
    return made


@pytest.mark.parametrize("entity_id", ["org", "key"])
async def test_a_request_passes_once_tokens_that_were_held_in_vain_are_back(
    world: World, holder: Holder, pause: Pause, entity_id: str
) -> None:
    await holder.hold(10)
    await take(world.limiter(), entity_id, t=1)
    assert pause.count == 1


async def test_a_waiter_is_not_refused_for_tokens_that_were_held_in_vain(
    world: World, holder: Holder, pause: Pause
) -> None:
    await holder.hold(10)
    async with world.limiter().acquire("org", "gpt-4", {"t": 1}, timeout=1):
        pass
    assert pause.count == 1


@pytest.mark.parametrize("entity_id", ["org", "key"])
async def test_a_charge_with_a_receipt_is_not_refused_for_tokens_that_were_held_in_vain(
    world: World, holder: Holder, pause: Pause, entity_id: str
) -> None:
    await holder.hold(10)
    lease = await world.limiter().reserve(entity_id, "gpt-4", {"t": 1}, idempotency_key="k")
    assert pause.count == 1
    await holder.hold(9)
    await lease.consume(t=2)
    assert pause.count == 2
    await lease.commit()


async def test_tokens_of_a_charge_that_came_to_pass_are_not_waited_for(
    world: World, holder: Holder, pause: Pause
) -> None:
    await holder.hold(10, is_tentative=False)
    with pytest.raises(RateLimitExceeded):
        await take(world.limiter(), "org", t=1)
    assert pause.count == 0


async def test_an_own_charge_that_came_to_pass_is_not_waited_for(
    world: World, holder: Holder, pause: Pause
) -> None:
    limiter = world.limiter()
    for _ in range(2):
        await take(limiter, "key", t=1)
    with pytest.raises(RateLimitExceeded):
        await take(limiter, "org", t=9)
    assert pause.count == 0


async def test_a_busy_parent_remembers_that_tokens_are_held(
    world: World, holder: Holder, pause: Pause
) -> None:
    await holder.hold(10)
    busy = limiter_on(world.stranger())
    for _ in range(9):
        await take(busy, "org", t=0)
    await take(world.limiter(), "org", t=1)
    assert pause.count == 1


async def test_tokens_that_are_held_for_long_are_looked_at_once_more(
    world: World, holder: Holder, pause: Pause
) -> None:
    async def nothing() -> None:
        world.clock.advance(0.4)

    pause.meanwhile = nothing
    await holder.hold(10)
    world.clock.advance(0.001)
    with pytest.raises(RateLimitExceeded):
        await take(world.limiter(), "org", t=1)
    assert pause.count == 1


async def test_parts_of_a_split_bucket_that_were_held_in_vain_are_waited_for(
    world: World, holder: Holder, pause: Pause
) -> None:
    await take(world.limiter(), "org", t=0)
    await holder.hold(10)
    home = holder.charges[0].address
    found = await read_all(world.scope, home)
    await split_shard(world.scope, home, found[home])
    await take(world.limiter(), "org", t=1)
    assert pause.count == 1


async def test_a_parent_that_is_charged_with_receipts_remembers_that_tokens_are_held(
    world: World, holder: Holder, pause: Pause
) -> None:
    await holder.hold(10)
    busy = limiter_on(world.stranger())
    for _ in range(9):
        lease = await busy.reserve("org", "gpt-4", {"t": 0}, lease_ttl=60)
        await lease.commit()
    await take(world.limiter(), "org", t=1)
    assert pause.count == 1
