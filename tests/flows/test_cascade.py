from __future__ import annotations

import pytest

from tests.support.drivers import World, balance, limiter_on, take
from zae_limiter import Entity, Limit, RateLimiter, RateLimitExceeded, Repository, ValidationError
from zae_limiter.core.audit import AuditEvent
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.hierarchy import MAX_LEVELS

RPM = Limit.per_minute("rpm", 100)


def level(number: int) -> str:
    return f"level-{number}"


async def make_chain(repository: Repository, levels: int, *, cascade: bool = True) -> None:
    """`level-1` is the leaf; each cascades to the next. Ancestors are made first."""
    for number in range(levels, 0, -1):
        parent_id = level(number + 1) if number < levels else None
        await repository.create_entity(level(number), parent_id=parent_id, cascade=cascade)
        await repository.set_limits(level(number), [RPM], "gpt-4")


async def balances(repository: Repository, levels: int) -> list[int | None]:
    found = [await balance(repository, level(number)) for number in range(1, levels + 1)]
    return [limits.get("rpm") for limits in found]


@pytest.mark.parametrize("levels", [1, 2, 4, 8])
async def test_every_level_is_charged_and_refunded(
    limiter: RateLimiter, repository: Repository, levels: int
) -> None:
    await make_chain(repository, levels)
    async with limiter.acquire("level-1", "gpt-4", {"rpm": 10}) as lease:
        assert await balances(repository, levels) == [90_000] * levels
        assert lease.consumed == {"rpm": 10 * levels}
        assert [entry.address.entity_id for entry in lease.entries] == [
            level(number) for number in range(1, levels + 1)
        ]
        await lease.consume(rpm=5)
        await lease.adjust(rpm=1)
    assert await balances(repository, levels) == [84_000] * levels
    with pytest.raises(ZeroDivisionError):
        async with limiter.acquire("level-1", "gpt-4", {"rpm": 10}):
            raise ZeroDivisionError
    assert await balances(repository, levels) == [84_000] * levels


@pytest.mark.parametrize("levels", [2, 4, 8])
@pytest.mark.parametrize("speculative", [True, False])
async def test_a_short_ancestor_leaves_every_level_untouched(
    world: World, levels: int, speculative: bool
) -> None:
    repository = world.repository
    await make_chain(repository, levels)
    limiter = world.limiter(speculative_writes=speculative)
    await take(limiter, "level-1", rpm=10)
    await take(limiter, level(levels), rpm=85)
    before = await balances(repository, levels)
    with pytest.raises(RateLimitExceeded) as refused:
        await take(limiter, "level-1", rpm=6)
    assert await balances(repository, levels) == before
    error = refused.value
    assert [(v.entity_id, v.limit_name) for v in error.violations] == [(level(levels), "rpm")]
    assert {status.entity_id for status in error.statuses} == {
        level(number) for number in range(1, levels + 1)
    }
    assert [status.available for status in error.passed] == [90] * (levels - 1)
    assert error.retry_after_seconds == 0.6
    assert level(levels) in str(error)
    world.clock.advance(0.6)
    await take(limiter, "level-1", rpm=6)


async def test_a_refusal_tells_the_longest_wait_of_all_levels(world: World) -> None:
    repository, limiter = world.repository, world.limiter()
    await repository.create_entity("org")
    await repository.create_entity("key", parent_id="org", cascade=True)
    await repository.set_limits("org", [Limit.per_minute("rpm", 60)], "gpt-4")
    await repository.set_limits("key", [Limit.per_minute("rpm", 120)], "gpt-4")
    await take(limiter, "org", rpm=60)
    await take(limiter, "key", rpm=0)
    async with limiter.acquire("org", "gpt-4", {}) as lease:
        await lease.adjust(rpm=10)
    with pytest.raises(RateLimitExceeded) as refused:
        await take(limiter, "key", rpm=121)
    assert not refused.value.retryable
    assert refused.value.primary_violation.entity_id in ("key", "org")
    with pytest.raises(RateLimitExceeded) as refused:
        await take(limiter, "key", rpm=1)
    assert refused.value.primary_violation.entity_id == "org"
    assert refused.value.retry_after_seconds == 11


async def test_siblings_share_their_parent(limiter: RateLimiter, repository: Repository) -> None:
    await repository.create_entity("org")
    await repository.set_limits("org", [RPM], "gpt-4")
    await repository.set_resource_defaults("gpt-4", [Limit.per_minute("rpm", 80)])
    for child in ("a", "b"):
        await repository.create_entity(child, parent_id="org", cascade=True)
    await take(limiter, "a", rpm=70)
    with pytest.raises(RateLimitExceeded) as refused:
        await take(limiter, "b", rpm=31)
    assert refused.value.primary_violation.entity_id == "org"
    await take(limiter, "b", rpm=30)
    assert await limiter.available("a", "gpt-4") == {"rpm": 0}
    assert await balance(repository, "b") == {"rpm": 50_000}


async def test_only_entities_that_cascade_charge_their_parent(
    limiter: RateLimiter, repository: Repository
) -> None:
    await make_chain(repository, 3, cascade=False)
    await take(limiter, "level-1", rpm=10)
    assert await balances(repository, 3) == [90_000, None, None]


async def test_the_chain_ends_where_an_ancestor_does_not_cascade(
    limiter: RateLimiter, repository: Repository
) -> None:
    await repository.set_system_defaults([RPM])
    await repository.create_entity("level-3")
    await repository.create_entity("level-2", parent_id="level-3", cascade=False)
    await repository.create_entity("level-1", parent_id="level-2", cascade=True)
    await take(limiter, "level-1", rpm=10)
    assert await balances(repository, 3) == [90_000, 90_000, None]


async def test_an_ancestor_is_charged_only_for_what_it_limits(
    limiter: RateLimiter, repository: Repository
) -> None:
    await repository.create_entity("org")
    await repository.create_entity("key", parent_id="org", cascade=True)
    await repository.set_limits("key", [RPM, Limit.per_minute("tpm", 1_000)], "gpt-4")
    await repository.set_limits(
        "org", [Limit.per_day("tpm", 500), Limit.per_day("rpd", 9)], "gpt-4"
    )
    async with limiter.acquire("key", "gpt-4", {"rpm": 1, "tpm": 100}) as lease:
        await lease.adjust(rpm=1, tpm=10)
    assert await balance(repository, "key") == {"rpm": 98_000, "tpm": 890_000}
    assert await balance(repository, "org") == {"tpm": 390_000, "rpd": 9_000}
    with pytest.raises(ValidationError, match="rpd"):
        await take(limiter, "key", rpd=1)


async def test_an_ancestor_without_limits_is_passed_over(
    limiter: RateLimiter, repository: Repository
) -> None:
    await repository.create_entity("level-3")
    await repository.create_entity("level-2", parent_id="level-3", cascade=True)
    await repository.create_entity("level-1", parent_id="level-2", cascade=True)
    await repository.set_limits("level-1", [RPM], "gpt-4")
    await repository.set_limits("level-3", [RPM], "gpt-4")
    await take(limiter, "level-1", rpm=10)
    assert await balances(repository, 3) == [90_000, None, 90_000]


async def test_a_parent_need_not_exist_to_be_charged(
    limiter: RateLimiter, repository: Repository
) -> None:
    await repository.set_system_defaults([RPM])
    await repository.create_entity("key", parent_id="nobody", cascade=True)
    await take(limiter, "key", rpm=10)
    assert await balance(repository, "nobody") == {"rpm": 90_000}


async def test_a_ninth_level_is_refused_when_it_is_created(repository: Repository) -> None:
    await make_chain(repository, MAX_LEVELS)
    with pytest.raises(ValidationError, match="levels") as refused:
        await repository.create_entity("level-0", parent_id="level-1", cascade=True)
    assert refused.value.field == "parent_id"
    assert await repository.get_entity("level-0") is None


async def test_a_ninth_level_that_was_created_from_below_is_refused_when_used(
    limiter: RateLimiter, world: World
) -> None:
    for number in range(1, MAX_LEVELS + 2):
        parent_id = level(number + 1) if number <= MAX_LEVELS else None
        await world.repository.create_entity(level(number), parent_id=parent_id, cascade=True)
    await world.repository.set_system_defaults([RPM])
    before = world.dump()
    with pytest.raises(ValidationError, match="levels") as refused:
        await take(limiter, "level-1", rpm=1)
    assert refused.value.field == "parent_id"
    assert world.dump() == before
    await take(limiter, "level-2", rpm=1)


@pytest.mark.parametrize("length", [1, 2, 5])
async def test_a_cycle_is_refused_when_it_is_created(repository: Repository, length: int) -> None:
    for number in range(1, length):
        await repository.create_entity(level(number), parent_id=level(number + 1))
    with pytest.raises(ValidationError, match="cycle") as refused:
        await repository.create_entity(level(length), parent_id="level-1")
    assert refused.value.field == "parent_id"


async def test_a_cycle_that_is_stored_is_refused_when_used(
    limiter: RateLimiter, world: World
) -> None:
    """Two processes may create the two halves of a cycle at the same time."""
    await world.repository.set_system_defaults([RPM])
    other = limiter_on(world.stranger())
    await other.create_entity("b", parent_id="a", cascade=True)
    scope = world.scope
    event = AuditEvent("0", "2024-01-01T00:00:00Z", "entity_created", "a")
    creation = scope.store.entities.create(
        scope.namespace_id, Entity("a", parent_id="b", cascade=True), event
    )
    assert await creation
    before = world.dump()
    with pytest.raises(ValidationError, match="cycle"):
        await take(limiter, "a", rpm=1)
    with pytest.raises(ValidationError, match="cycle"):
        await limiter.available("b", "gpt-4")
    assert world.dump() == before


async def test_available_and_time_until_available_include_every_level(world: World) -> None:
    limiter, repository = world.limiter(), world.repository
    await make_chain(repository, 4)
    await take(limiter, "level-3", rpm=95)
    assert await limiter.available("level-1", "gpt-4") == {"rpm": 5}
    assert await limiter.time_until_available("level-1", "gpt-4", {"rpm": 6}) == 0.6
    await repository.set_limits("level-4", [Limit.per_minute("rpm", 3)], "gpt-4")
    assert await limiter.time_until_available("level-1", "gpt-4", {"rpm": 4}) == float("inf")


async def test_limits_of_the_call_replace_the_limits_of_every_level(
    limiter: RateLimiter, repository: Repository
) -> None:
    await make_chain(repository, 2)
    await take(limiter, "level-1", limits=[Limit.per_minute("rpm", 7)], rpm=7)
    assert await balances(repository, 2) == [0, 0]


async def test_a_level_that_refused_a_parallel_charge_is_doubted_until_it_passes(
    world: World,
) -> None:
    repository, limiter = world.repository, world.limiter()
    await repository.create_entity("org")
    await repository.create_entity("key", parent_id="org", cascade=True)
    await repository.set_limits("org", [Limit.per_day("tpd", 1000)], "gpt-4")
    await repository.set_limits("key", [RPM, Limit.per_day("tpd", 1000)], "gpt-4")
    elsewhere = limiter_on(world.stranger())
    await take(limiter, "key", rpm=1, tpd=1)
    await take(elsewhere, "key", rpm=98)
    with pytest.raises(RateLimitExceeded):
        await take(limiter, "key", rpm=50, tpd=100)
    for _ in range(3):
        world.clock.advance(30)
        await take(elsewhere, "key", rpm=50)
        org = BucketAddress(world.scope.namespace_id, "org", "gpt-4")
        before = await world.scope.store.buckets.read([org])
        with pytest.raises(RateLimitExceeded):
            await take(limiter, "key", rpm=50, tpd=100)
        # Neither charged nor given back: the item remembers its last operations.
        assert await world.scope.store.buckets.read([org]) == before
    world.clock.advance(60)
    await take(limiter, "key", rpm=50, tpd=100)
    assert not world.scope.local.doubted.keys
