"""Limits that inherit are merged by name with those of the next level."""

from __future__ import annotations

import pytest

from tests.support.drivers import ADMIN_DRIVERS, Driver, StoreKind
from zae_limiter import (
    Limit,
    LimiterConfig,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    ValidationError,
)

RPM, TPM = Limit.per_minute("rpm", 2), Limit.per_minute("tpm", 100)


@pytest.fixture
def driver(store_kind: StoreKind) -> Driver:
    return ADMIN_DRIVERS[store_kind]


def numbers(limits: list[Limit] | None) -> dict[str, int]:
    return {limit.name: limit.capacity for limit in limits or ()}


async def test_a_customer_whose_one_limit_is_raised_keeps_the_others(
    limiter: RateLimiter, repository: Repository
) -> None:
    await repository.set_resource_defaults("gpt-4", [RPM, TPM])
    await repository.set_limits("key-1", [Limit.per_minute("rpm", 9)], "gpt-4", inherit=True)
    limits, _, source = await repository.resolve_limits("key-1", "gpt-4")
    assert (numbers(limits), source) == ({"rpm": 9, "tpm": 100}, "entity")
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 5, "tpm": 100}):
        pass
    with pytest.raises(RateLimitExceeded):
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 50}):
            pass


async def test_every_level_may_pass_on_to_the_next(repository: Repository) -> None:
    await repository.set_system_defaults([Limit.per_minute("rpd", 1), TPM])
    await repository.set_resource_defaults("gpt-4", [RPM], inherit=True)
    await repository.set_limits("key-1", [Limit.per_minute("tpm", 7)], inherit=True)
    await repository.set_limits("key-1", [Limit.per_minute("tph", 8)], "gpt-4", inherit=True)

    async def in_force(entity_id: str, resource: str) -> dict[str, int]:
        return numbers((await repository.resolve_limits(entity_id, resource))[0])

    assert await in_force("key-1", "gpt-4") == {"tph": 8, "tpm": 7, "rpm": 2, "rpd": 1}
    assert await in_force("key-1", "other") == {"tpm": 7, "rpd": 1}
    assert await in_force("key-2", "gpt-4") == {"rpm": 2, "rpd": 1, "tpm": 100}
    await repository.set_limits("key-1", [Limit.per_minute("tpm", 5)])
    assert await in_force("key-1", "gpt-4") == {"tph": 8, "tpm": 5}
    stored = await repository.get_config("entity", "key-1", "gpt-4")
    assert stored == LimiterConfig((Limit.per_minute("tph", 8),), inherit=True)


async def test_a_change_of_the_next_level_reaches_those_who_inherit(repository: Repository) -> None:
    await repository.set_resource_defaults("gpt-4", [RPM])
    await repository.set_limits("key-1", [TPM], "gpt-4", inherit=True)
    assert (await repository.resolve_limits("key-1", "gpt-4"))[0] == [TPM, RPM]
    slower = Limit.per_minute("rpm", 1)
    await repository.set_resource_defaults("gpt-4", [slower])
    assert (await repository.resolve_limits("key-1", "gpt-4"))[0] == [TPM, slower]
    await repository.delete_resource_defaults("gpt-4")
    assert (await repository.resolve_limits("key-1", "gpt-4"))[0] == [TPM]


async def test_inherit_goes_with_limits_below_the_system(repository: Repository) -> None:
    for level, config in [
        ("system", LimiterConfig((RPM,), inherit=True)),
        ("resource", LimiterConfig(inherit=True)),
        ("resource", LimiterConfig((RPM,), inherit="yes")),  # type: ignore[arg-type]
    ]:
        resource = None if level == "system" else "gpt-4"
        with pytest.raises(ValidationError, match="inherit"):
            await repository.set_config(level, config, resource=resource)
