from __future__ import annotations

import pytest

from tests.support.drivers import ADMIN_DRIVERS, Driver, StoreKind, World, take
from zae_limiter import (
    EntityCapacity,
    Limit,
    RateLimiter,
    Repository,
    ResourceCapacity,
)
from zae_limiter.testing import ManualClock

RPM = Limit.per_minute("rpm", 100)


@pytest.fixture
def driver(store_kind: StoreKind) -> Driver:
    return ADMIN_DRIVERS[store_kind]


@pytest.fixture(autouse=True)
async def _limits(repository: Repository) -> None:
    await repository.set_system_defaults([RPM, Limit.per_minute("tpm", 1_000)])


async def test_the_capacity_of_a_resource_sums_all_its_buckets(
    limiter: RateLimiter, repository: Repository
) -> None:
    await repository.set_limits("big", [Limit.per_minute("rpm", 300)], "gpt-4")
    await take(limiter, "big", rpm=30)
    await take(limiter, "small", rpm=50)
    await take(limiter, "small", "gpt-3", rpm=1)
    assert await limiter.get_resource_capacity("gpt-4", "rpm") == ResourceCapacity(
        "gpt-4",
        "rpm",
        total_capacity=400,
        total_available=320,
        utilization_pct=20.0,
        entities=[EntityCapacity("big", 300, 270, 10.0), EntityCapacity("small", 100, 50, 50.0)],
    )
    assert await limiter.get_resource_capacity("gpt-4", "tpm") == ResourceCapacity(
        "gpt-4", "tpm", 1_000, 1_000, 0.0, [EntityCapacity("small", 1_000, 1_000, 0.0)]
    )


async def test_capacity_counts_tokens_refilled_since_the_last_write(
    limiter: RateLimiter, clock: ManualClock
) -> None:
    await take(limiter, rpm=100)
    clock.advance(30)
    assert (await limiter.get_resource_capacity("gpt-4", "rpm")).total_available == 50
    clock.advance(300)
    assert (await limiter.get_resource_capacity("gpt-4", "rpm")).total_available == 100


async def test_a_bucket_in_debt_is_used_by_more_than_100_percent(limiter: RateLimiter) -> None:
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 100}) as lease:
        await lease.adjust(rpm=50)
    found = await limiter.get_resource_capacity("gpt-4", "rpm")
    assert (found.total_available, found.utilization_pct) == (-50, 150.0)


async def test_a_resource_without_buckets_has_no_capacity(
    limiter: RateLimiter, world: World
) -> None:
    await take(limiter, rpm=1)
    before = world.dump()
    for resource, limit_name in (("gpt-3", "rpm"), ("gpt-4", "rpd")):
        found = await limiter.get_resource_capacity(resource, limit_name)
        assert found == ResourceCapacity(resource, limit_name, 0, 0, 0.0, [])
    assert world.dump() == before


async def test_capacity_of_parents_only_leaves_children_out(
    limiter: RateLimiter, repository: Repository
) -> None:
    await repository.create_entity("org")
    await repository.create_entity("child", parent_id="org", cascade=True)
    await repository.create_entity("loner", parent_id="elsewhere", cascade=False)
    await take(limiter, "child", rpm=10)
    await take(limiter, "loner", rpm=20)
    await take(limiter, "stranger", rpm=30)
    found = await limiter.get_resource_capacity("gpt-4", "rpm", parents_only=True)
    assert [entity.entity_id for entity in found.entities] == ["org", "stranger"]
    assert found.total_available == 160
    found = await limiter.get_resource_capacity("gpt-4", "rpm")
    assert len(found.entities) == 4


async def test_an_entity_that_got_its_parent_after_its_first_use_is_a_child(
    limiter: RateLimiter, repository: Repository
) -> None:
    await take(limiter, "late", rpm=10)
    await repository.create_entity("late", parent_id="org")
    found = await limiter.get_resource_capacity("gpt-4", "rpm", parents_only=True)
    assert found.entities == []


async def test_stored_buckets_are_read_by_entity_resource_and_limit(
    limiter: RateLimiter, repository: Repository, clock: ManualClock
) -> None:
    await take(limiter, "a", rpm=10)
    await take(limiter, "a", "gpt-3", rpm=1)
    await take(limiter, "b", rpm=20)
    state = await repository.get_bucket("a", "gpt-4", "rpm")
    assert state is not None
    assert (state.tokens_milli, state.capacity_milli) == (90_000, 100_000)
    assert (state.refill_amount_milli, state.refill_period_ms) == (100_000, 60_000)
    assert (state.last_refill_ms, state.total_consumed_milli) == (clock.now_ms(), 10_000)
    assert (state.tokens, state.capacity) == (90, 100)
    assert Limit.from_bucket_state(state) == RPM
    assert await repository.get_bucket("a", "gpt-4", "rpd") is None
    assert await repository.get_bucket("nobody", "gpt-4", "rpm") is None
    of_a = await repository.get_buckets("a")
    assert {(s.resource, s.limit_name) for s in of_a} == {
        (resource, name) for resource in ("gpt-3", "gpt-4") for name in ("rpm", "tpm")
    }
    of_gpt = await repository.get_resource_buckets("gpt-4", "rpm")
    assert [(s.entity_id, s.tokens) for s in of_gpt] == [("a", 90), ("b", 80)]
    assert len(await repository.get_resource_buckets("gpt-4")) == 4
