from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.drivers import ADMIN_DRIVERS, Driver, StoreKind, World
from zae_limiter import (
    AuditAction,
    Limit,
    LimiterConfig,
    OnUnavailable,
    RateLimiter,
    Repository,
    SyncRepository,
    ValidationError,
)

RPM = Limit.per_minute("rpm", 100)
TPM = Limit.per_hour("t-p.m", 10**15, burst=5)

PLACES: list[tuple[str, str | None, str | None]] = [
    ("system", None, None),
    ("resource", None, "gpt-4"),
    ("resource", "gpt-3", None),
    ("entity", "key-1", None),
    ("entity", "key-1", "gpt-4"),
]


@pytest.fixture
def driver(store_kind: StoreKind) -> Driver:
    return ADMIN_DRIVERS[store_kind]


def said(config: LimiterConfig | None) -> dict[str, Any] | None:
    return None if config is None else config.to_dict()


@pytest.mark.parametrize(("level", "identifier", "resource"), PLACES)
async def test_a_config_is_stored_at_each_level(
    limiter: RateLimiter,
    repository: Repository,
    level: str,
    identifier: str | None,
    resource: str | None,
) -> None:
    assert await limiter.get_config(level, identifier, resource) is None
    await limiter.set_config(level, LimiterConfig((RPM, TPM)), identifier, resource)
    stored = await repository.get_config(level, identifier, resource)
    assert stored == LimiterConfig((RPM, TPM))
    await repository.set_config(level, LimiterConfig((TPM,)), identifier, resource)
    stored = await limiter.get_config(level, identifier, resource)
    assert said(stored) == {"limits": [TPM.to_dict()], "config_version": 2}
    others = [place for place in PLACES if place != (level, identifier, resource)]
    assert [await limiter.get_config(*place) for place in others] == [None] * len(others)


async def test_a_config_keeps_the_fields_that_are_not_set(repository: Repository) -> None:
    await repository.set_config("system", LimiterConfig(on_unavailable="allow"))
    await repository.set_config("system", LimiterConfig((RPM,), auto_update=False))
    await repository.set_config("system", LimiterConfig(strict_version=True))
    await repository.set_system_defaults([TPM])
    assert said(await repository.get_config("system")) == {
        "limits": [TPM.to_dict()],
        "on_unavailable": "allow",
        "auto_update": False,
        "strict_version": True,
        "config_version": 4,
    }
    assert await repository.get_system_defaults() == ([TPM], "allow")
    assert await repository.get_system_limits() == [TPM]


async def test_set_limits_and_set_config_write_the_same_record(
    limiter: RateLimiter, repository: Repository
) -> None:
    await limiter.set_limits("key-1", [RPM], "gpt-4")
    await limiter.set_limits("key-1", [TPM])
    await limiter.set_resource_defaults("gpt-4", [RPM, TPM])
    assert await repository.get_config("entity", "key-1", "gpt-4") == LimiterConfig((RPM,))
    assert await repository.get_config("entity", "key-1") == LimiterConfig((TPM,))
    assert await repository.get_config("resource", "gpt-4") == LimiterConfig((RPM, TPM))
    assert await limiter.get_limits("key-1", "gpt-4") == [RPM]
    assert await limiter.get_limits("key-1") == [TPM]
    assert await limiter.get_resource_defaults("gpt-4") == [RPM, TPM]
    assert await limiter.get_limits("key-2") == []
    assert await limiter.get_resource_defaults("gpt-3") == []


async def test_an_entity_that_is_given_no_limits_has_none_of_its_own(
    limiter: RateLimiter, repository: Repository
) -> None:
    await limiter.set_resource_defaults("gpt-4", [TPM])
    nothing: Any
    for nothing in ([], ()):
        await limiter.set_limits("key-1", [RPM], "gpt-4")
        await limiter.set_limits("key-1", nothing, "gpt-4")
        assert await limiter.get_limits("key-1", "gpt-4") == []
        assert await repository.resolve_limits("key-1", "gpt-4") == ([TPM], None, "resource")
    assert await limiter.list_entities_with_custom_limits("gpt-4") == ([], None)
    actions = [event.action for event in await limiter.get_audit_events("key-1")]
    assert actions == ["limits_deleted", "limits_set"] * 2


async def test_a_deleted_config_is_gone_and_its_version_counts_on(
    limiter: RateLimiter, repository: Repository
) -> None:
    for _ in range(2):
        await limiter.set_limits("key-1", [RPM], "gpt-4")
        await limiter.set_resource_defaults("gpt-4", [RPM])
        await limiter.set_system_defaults([RPM], OnUnavailable.ALLOW)
        assert await limiter.get_system_defaults() == ([RPM], OnUnavailable.ALLOW)
        for _ in range(2):
            await limiter.delete_limits("key-1", "gpt-4")
            await limiter.delete_resource_defaults("gpt-4")
            await limiter.delete_system_defaults()
        assert await limiter.get_limits("key-1", "gpt-4") == []
        assert await limiter.get_resource_defaults("gpt-4") == []
        assert await limiter.get_system_defaults() == ([], None)
        assert await limiter.get_config("system") is None
    await limiter.set_system_defaults([RPM])
    config = await repository.get_config("system")
    assert config is not None
    assert config.config_version == 3


async def test_config_versions_count_every_change_of_eight_threads(world: World) -> None:
    def change(number: int) -> None:
        repository = (
            SyncRepository.connect(url=world.url)
            if world.is_shared
            else SyncRepository.on_scope(world.scope, "default", owns_store=False)
        )
        with repository:
            for step in range(5):
                limit = Limit.per_minute("rpm", 1 + number * 5 + step)
                repository.set_config("entity", LimiterConfig((limit,)), "key-1", "gpt-4")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(change, range(8)))
    config = await world.repository.get_config("entity", "key-1", "gpt-4")
    assert config is not None
    assert config.config_version == 40
    assert len(await world.repository.get_audit_events("key-1")) == 40


async def test_listings_show_entities_and_resources_that_have_limits(
    limiter: RateLimiter, repository: Repository
) -> None:
    ids = sorted(f"key-{number}" for number in range(7))
    for entity_id in ids:
        await limiter.set_limits(entity_id, [RPM], "gpt-4")
    await limiter.set_limits("key-1", [RPM])
    await limiter.set_resource_defaults("whisper", [RPM])
    await limiter.set_resource_defaults("claude", [RPM])
    await limiter.set_config("system", LimiterConfig(on_unavailable="allow"))
    assert await limiter.list_entities_with_custom_limits("gpt-4") == (ids, None)
    assert await limiter.list_entities_with_custom_limits("_default_") == (["key-1"], None)
    found: list[str] = []
    cursor: str | None = None
    while True:
        page, cursor = await repository.list_entities_with_custom_limits("gpt-4", 3, cursor)
        assert page
        assert not set(page) & set(found)
        found += page
        if cursor is None:
            break
    assert found == ids
    assert await limiter.list_resources_with_entity_configs() == ["_default_", "gpt-4"]
    assert await limiter.list_resources_with_defaults() == ["claude", "whisper"]


BAD_CONFIGS: list[tuple[str, dict[str, Any]]] = [
    ("level", {"level": "galaxy", "config": LimiterConfig((RPM,))}),
    ("level", {"level": None, "config": LimiterConfig((RPM,))}),
    ("identifier", {"level": "entity", "config": LimiterConfig((RPM,))}),
    ("identifier", {"level": "system", "config": LimiterConfig((RPM,)), "identifier": "x"}),
    ("identifier", {"level": "system", "config": LimiterConfig((RPM,)), "resource": "x"}),
    ("resource", {"level": "resource", "config": LimiterConfig((RPM,))}),
    ("resource", {"level": "resource", "config": LimiterConfig((RPM,)), "resource": ""}),
    (
        "resource",
        {"level": "entity", "config": LimiterConfig((RPM,)), "identifier": "e", "resource": ""},
    ),
    (
        "identifier",
        {"level": "resource", "config": LimiterConfig((RPM,)), "identifier": "a", "resource": "b"},
    ),
    ("config", {"level": "system", "config": LimiterConfig()}),
    ("config", {"level": "system", "config": LimiterConfig(config_version=7)}),
    ("config", {"level": "system", "config": {"limits": []}}),
    ("config", {"level": "system", "config": None}),
    ("limits", {"level": "system", "config": LimiterConfig(())}),
    ("limits", {"level": "system", "config": LimiterConfig((RPM, RPM))}),
    ("limits", {"level": "system", "config": LimiterConfig(("rpm",))}),  # type: ignore[arg-type]
    ("on_unavailable", {"level": "system", "config": LimiterConfig(on_unavailable="maybe")}),  # type: ignore[arg-type]
    ("auto_update", {"level": "system", "config": LimiterConfig(auto_update="yes")}),  # type: ignore[arg-type]
    ("auto_update", {"level": "system", "config": LimiterConfig(auto_update=1)}),  # type: ignore[arg-type]
    ("strict_version", {"level": "system", "config": LimiterConfig(strict_version=0.0)}),  # type: ignore[arg-type]
    (
        "on_unavailable",
        {"level": "resource", "config": LimiterConfig(on_unavailable="allow"), "resource": "gpt"},
    ),
    (
        "auto_update",
        {"level": "entity", "config": LimiterConfig(auto_update=True), "identifier": "e"},
    ),
    (
        "principal",
        {"level": "system", "config": LimiterConfig((RPM,)), "principal": "no spaces please"},
    ),
]


@pytest.mark.parametrize(("field", "arguments"), BAD_CONFIGS)
async def test_a_bad_config_is_refused_and_changes_nothing(
    world: World, field: str, arguments: dict[str, Any]
) -> None:
    await world.repository.set_system_defaults([TPM], "allow")
    before = world.dump()
    with pytest.raises(ValidationError) as refused:
        await world.limiter().set_config(**arguments)
    assert refused.value.field == field
    assert world.dump() == before


async def test_each_change_of_limits_is_recorded(limiter: RateLimiter) -> None:
    await limiter.set_limits("key-1", [RPM], "gpt-4", principal="alice")
    await limiter.delete_limits("key-1", "gpt-4", principal="arn:aws:iam::1:user/bob")
    await limiter.delete_limits("key-1", "gpt-4")
    await limiter.set_resource_defaults("gpt-4", [RPM])
    await limiter.delete_resource_defaults("gpt-4")
    await limiter.set_system_defaults([RPM], OnUnavailable.BLOCK)
    await limiter.delete_system_defaults()
    found = {
        entity_id: [
            (event.action, event.principal, event.resource, event.details)
            for event in await limiter.get_audit_events(entity_id)
        ]
        for entity_id in ("key-1", "$RESOURCE:gpt-4", "$SYSTEM")
    }
    limits = {"limits": [RPM.to_dict()]}
    assert found == {
        "key-1": [
            (AuditAction.LIMITS_DELETED, "arn:aws:iam::1:user/bob", "gpt-4", {}),
            (AuditAction.LIMITS_SET, "alice", "gpt-4", limits),
        ],
        "$RESOURCE:gpt-4": [
            (AuditAction.LIMITS_DELETED, None, "gpt-4", {}),
            (AuditAction.LIMITS_SET, None, "gpt-4", limits),
        ],
        "$SYSTEM": [
            (AuditAction.LIMITS_DELETED, None, None, {}),
            (AuditAction.LIMITS_SET, None, None, {**limits, "on_unavailable": "block"}),
        ],
    }
