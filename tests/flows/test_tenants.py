"""Two namespaces of one repository never meet, whatever both ask at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from tests.support.crowd import Gate, in_thread, until
from tests.support.drivers import Awaited, World, limiter_on
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository
from zae_limiter.core.hierarchy import ConfigSlot
from zae_limiter.ports.repository_protocol import ConfigPage, Configs, RepositoryProtocol

ROUNDS = 8
CALLERS = 6
LOOSE, TIGHT = 1_000_000, 5
Question = Callable[["Tenant"], Awaitable[object]]


@dataclass
class Tenant:
    """A namespace whose entities, parents and resources are named like those of the other."""

    repository: Repository
    capacity: int

    @property
    def limiter(self) -> RateLimiter:
        return limiter_on(self.repository)

    async def set_up(self) -> None:
        repository, other_level = self.repository, self.capacity * 2
        await repository.set_system_defaults([Limit.per_minute("rpm", self.capacity)])
        await repository.set_resource_defaults("gpt-4", [Limit.per_minute("rpm", other_level)])
        await repository.create_entity("org", f"org of {self.capacity}")
        await repository.create_entity("key", parent_id="org", cascade=True)
        await repository.set_limits("key", [Limit.per_minute("rpm", self.capacity)])


async def tenants_of(repository: Repository) -> list[Tenant]:
    made = []
    for name, capacity in (("loose", LOOSE), ("tight", TIGHT)):
        await repository.register_namespace(name)
        tenant = Tenant(await repository.namespace(name), capacity)
        await tenant.set_up()
        made.append(tenant)
    return made


@pytest.fixture
async def tenants(world: World) -> list[Tenant]:
    return await tenants_of(world.repository)


def begin(world: World, work: Awaitable[Any]) -> asyncio.Future[Any]:
    """Begin a task, or a thread of its own."""
    if world.driver == "asyncio":
        return asyncio.ensure_future(work)
    return in_thread(cast(Any, work))


async def ask_together(
    world: World, tenants: Sequence[Tenant], question: Question
) -> list[set[str]]:
    """The different answers that each tenant got to calls made at the same time."""
    calls = []
    for _ in range(CALLERS):
        calls.append([begin(world, question(tenant)) for tenant in tenants])
    answers = [[str(await call) for call in each] for each in calls]
    return [set(of_one) for of_one in zip(*answers, strict=True)]


async def limits_of(tenant: Tenant) -> object:
    return await tenant.repository.resolve_limits("key", "gpt-4")


async def shared_limits_of(tenant: Tenant) -> object:
    return await tenant.repository.resolve_limits("stranger", "gpt-4")


async def system_limits_of(tenant: Tenant) -> object:
    return await tenant.repository.resolve_limits("stranger", "gpt-5")


async def available_of(tenant: Tenant) -> object:
    return await tenant.limiter.available("key", "gpt-4")


async def wait_of(tenant: Tenant) -> object:
    return await tenant.limiter.time_until_available("key", "gpt-4", {"rpm": TIGHT + 1})


async def acquired_of(tenant: Tenant) -> object:
    try:
        async with tenant.limiter.acquire("key", "gpt-4", {"rpm": TIGHT + 1}) as lease:
            await lease.release(rpm=TIGHT + 1)
            return [entry.charged_milli for entry in lease.entries]
    except RateLimitExceeded as refused:
        return [(status.entity_id, status.limit.capacity) for status in refused.violations]


async def waited_of(tenant: Tenant) -> object:
    try:
        async with tenant.limiter.acquire("key", "gpt-4", {"rpm": TIGHT + 1}, timeout=1) as lease:
            await lease.release(rpm=TIGHT + 1)
            return [entry.charged_milli for entry in lease.entries]
    except RateLimitExceeded as refused:
        return [(status.entity_id, status.limit.capacity) for status in refused.violations]


async def unavailable_mode_of(tenant: Tenant) -> object:
    return await tenant.repository.resolve_on_unavailable()


async def entity_of(tenant: Tenant) -> object:
    return await tenant.repository.get_entity("org")


async def capacity_of(tenant: Tenant) -> object:
    found = await tenant.limiter.get_resource_capacity("gpt-4", "rpm")
    return [(entity.entity_id, entity.capacity) for entity in found.entities]


QUESTIONS: list[Question] = [
    limits_of,
    shared_limits_of,
    system_limits_of,
    available_of,
    wait_of,
    acquired_of,
    waited_of,
    unavailable_mode_of,
    entity_of,
    capacity_of,
]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.__name__)
async def test_tenants_that_ask_at_the_same_time_get_their_own_answers(
    world: World, tenants: list[Tenant], question: Question
) -> None:
    for tenant in tenants:
        await acquired_of(tenant)
        await tenant.repository.invalidate_config_cache()
    alone = [{str(await question(tenant))} for tenant in tenants]
    assert alone[0] != alone[1] or question is unavailable_mode_of
    for _ in range(ROUNDS):
        for tenant in tenants:
            await tenant.repository.invalidate_config_cache()
        assert await ask_together(world, tenants, question) == alone


async def test_a_tight_tenant_is_not_admitted_by_the_limits_of_a_loose_one(
    world: World, tenants: list[Tenant]
) -> None:
    async def take(tenant: Tenant) -> bool:
        try:
            async with tenant.limiter.acquire("key", "gpt-4", {"rpm": 1}):
                return True
        except RateLimitExceeded:
            return False

    admitted = [0, 0]
    for _ in range(ROUNDS):
        for tenant in tenants:
            await tenant.repository.invalidate_config_cache()
        calls = [[begin(world, take(tenant)) for tenant in tenants] for _ in range(CALLERS)]
        for each in calls:
            for number, call in enumerate(each):
                admitted[number] += await call
    assert admitted == [ROUNDS * CALLERS, TIGHT]


class GatedConfigs:
    """Configuration whose reads wait at a gate after they have happened."""

    def __init__(self, inner: Configs, gate: Gate) -> None:
        self._inner = inner
        self._gate = gate
        self.reads = 0

    async def read(
        self, namespace_id: str, slots: Sequence[ConfigSlot], entity_id: str | None = None
    ) -> ConfigPage:
        page = await self._inner.read(namespace_id, slots, entity_id)
        self.reads += 1
        await self._gate.passed()
        return page

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class GatedStore:
    """A store whose configuration waits at a gate."""

    def __init__(self, inner: RepositoryProtocol, configs: GatedConfigs) -> None:
        self._inner = inner
        self.configs = configs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def test_two_repositories_of_a_namespace_share_no_read_from_before_a_change(
    world: World, tenants: list[Tenant]
) -> None:
    gate = Gate(world.driver)
    tight = tenants[1].repository
    inner = tight.inner if isinstance(tight, Awaited) else tight
    configs = GatedConfigs(inner.scope.store.configs, gate)
    store = cast(RepositoryProtocol, GatedStore(inner.scope.store, configs))
    origin = type(inner).on_scope(replace(inner.scope, store=store), "tight", owns_store=False)
    wrapped = cast(Repository, Awaited(origin) if isinstance(tight, Awaited) else origin)
    first, second = await wrapped.namespace("tight"), await wrapped.namespace("tight")
    # Both caches are then of one generation, so that only their repository tells them apart.
    await first.invalidate_config_cache()
    gate.close()
    early = begin(world, first.resolve_limits("key", "gpt-4"))
    await until(lambda: configs.reads == 1)
    await second.set_limits("key", [Limit.per_minute("rpm", 7)])
    late = begin(world, second.resolve_limits("key", "gpt-4"))
    await asyncio.sleep(0.02)
    gate.open()
    limits, _, _ = await late
    assert limits == [Limit.per_minute("rpm", 7)]
    await early


async def test_refusals_without_a_call_are_counted_for_each_namespace(world: World) -> None:
    origin, daily = world.repository, [Limit.per_day("rpm", 1)]
    await origin.register_namespace("other")
    other = await origin.namespace("other")
    limiter = limiter_on(other)
    for _ in range(3):
        with pytest.raises(RateLimitExceeded):
            async with limiter.acquire("key", "gpt-4", {"rpm": 2}, daily):
                pass
    counted = [each.get_cache_stats().local_rejections for each in (origin, other)]
    assert counted[0] == 0
    assert counted[1] > 0
