"""Names of PyPI's zae-limiter 0.17 that programs still use: they work, and warn."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

import zae_limiter
from tests.support.dynamodb import new_name
from tests.support.servers.processes import Server
from zae_limiter import (
    CacheStats,
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    RepositoryProtocol,
    SyncRateLimiter,
    SyncRepository,
    ValidationError,
)

RPM = Limit.per_day("rpm", 10)


@pytest.fixture
def place(dynamodb: Server) -> dict[str, Any]:
    return {"region": dynamodb.region, "endpoint_url": dynamodb.url}


@pytest.fixture
def stack(place: dict[str, Any]) -> Iterator[str]:
    """A table without a registered namespace."""
    name = new_name()
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        repository = SyncRepository(name, **place)
    repository.create_table()
    yield name
    repository.delete_table()
    repository.close()


def test_a_repository_is_named_without_a_call_and_works(stack: str, place: dict[str, Any]) -> None:
    with pytest.warns(DeprecationWarning, match=r"SyncRepository.open\(...\)"):
        repository = SyncRepository(stack, **place, config_cache_ttl=0, rejection_cache_ttl=0)
    assert (repository.stack_name, repository.namespace_name) == (stack, "default")
    assert repository.namespace_id == "default"
    with repository:
        limiter = SyncRateLimiter(repository=repository)
        limiter.set_system_defaults([RPM])
        with limiter.acquire("key-1", "gpt-4", {"rpm": 10}):
            pass
        with pytest.raises(RateLimitExceeded), limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
            pass


def test_a_repository_that_was_named_works_on_when_registrations_are_confirmed(
    stack: str, place: dict[str, Any]
) -> None:
    SyncRepository.open(stack=stack, **place).close()
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        repository = SyncRepository(stack, **place)
    with repository:
        limiter = SyncRateLimiter(repository)
        limiter.set_system_defaults([RPM])
        repository.scope.local.config_cache.registered_at_ms = 0
        with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
            pass


async def test_an_asynchronous_repository_is_named_without_a_loop(
    stack: str, place: dict[str, Any]
) -> None:
    with pytest.warns(DeprecationWarning, match=r"Repository.open\(...\)"):
        repository = Repository(stack, **place)
    async with repository, RateLimiter(repository) as limiter:
        await limiter.set_system_defaults([RPM])
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
            pass
        assert await limiter.available("key-1", "gpt-4") == {"rpm": 9}


async def test_a_limiter_is_made_by_the_name_of_its_stack(
    stack: str, place: dict[str, Any]
) -> None:
    with pytest.warns(DeprecationWarning, match=r"RateLimiter\(.*\) is deprecated"):
        limiter = RateLimiter(name=stack, **place, bucket_ttl_refill_multiplier=3, auto_update=True)
    assert limiter.repository.stack_name == stack
    assert limiter.scope.settings.bucket_ttl_multiplier == 3
    async with limiter:
        assert await limiter.is_available(timeout=30)


def test_a_limiter_without_arguments_is_of_the_stack_limiter() -> None:
    for kind in (RateLimiter, SyncRateLimiter):
        with pytest.warns(DeprecationWarning, match=rf"{kind.__name__}\(\) is deprecated"):
            assert kind().repository.stack_name == "limiter"


def test_ensuring_infrastructure_without_stack_options_does_nothing(place: dict[str, Any]) -> None:
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        repository = SyncRepository(new_name(), **place)
    with repository:
        with pytest.warns(DeprecationWarning, match="ensure_infrastructure"):
            repository.ensure_infrastructure()
        assert not repository.ping()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_bad_arguments_of_old_constructors_are_refused_before_any_call() -> None:
    with pytest.raises(ValidationError) as refused:
        SyncRepository("no_hyphens")
    assert refused.value.field == "name"
    with pytest.raises(ValidationError, match="refusal_cache_size"):
        SyncRepository("stack", rejection_cache_size=0)
    with pytest.raises(TypeError, match="colour"):
        SyncRateLimiter(colour="red")  # type: ignore[call-arg]
    with SyncRepository("stack") as repository, pytest.raises(ValueError, match="name"):
        SyncRateLimiter(repository, name="other")


@pytest.mark.parametrize("mode", ["threads", "", None])
def test_a_bad_parallel_mode_is_a_value_error_and_a_validation_error(mode: Any) -> None:
    with pytest.raises(ValueError, match="must be one of") as refused:
        SyncRepository.open(url="memory://", parallel_mode=mode)
    assert isinstance(refused.value, ValidationError)


def test_options_for_refusals_have_two_names() -> None:
    with SyncRepository.open(url="memory://", rejection_cache_ttl=0.5) as repository:
        assert repository.scope.local.refusals.ttl_seconds == 0.5
    builder = SyncRepository.builder().url("memory://")
    with builder.rejection_cache_ttl(0.25).rejection_cache_size(5).build() as repository:
        assert repository.scope.local.refusals.ttl_seconds == 0.25
    with pytest.raises(ValidationError, match="another name of refusal_cache_ttl"):
        SyncRepository.open(url="memory://", rejection_cache_ttl=1, refusal_cache_ttl=1)


def test_no_more_refusals_are_remembered_than_the_size_allows() -> None:
    with SyncRepository.open(url="memory://", refusal_cache_size=2) as repository:
        limiter = SyncRateLimiter(repository)
        limiter.set_system_defaults([RPM])
        for number in (1, 2, 3, 1):
            with pytest.raises(RateLimitExceeded):
                limiter.acquire(f"key-{number}", "gpt-4", {"rpm": 11}).__enter__()
        assert repository.get_cache_stats().local_rejections == 0
        with pytest.raises(RateLimitExceeded):
            limiter.acquire("key-3", "gpt-4", {"rpm": 11}).__enter__()
        assert repository.get_cache_stats().local_rejections == 1


IMPORTS = {
    "bucket": ["try_consume", "refill_bucket"],
    "config_cache": ["CacheStats", "ConfigCache", "ConfigSource"],
    "exceptions": ["ZAELimiterError", "RateLimitExceeded", "VersionMismatchError"],
    "models": ["Limit", "Entity", "LimitStatus", "UsageSnapshot", "validate_identifier"],
    "naming": ["resolve_stack_name", "resolve_namespace_name", "validate_stack_name"],
    "repository_protocol": ["RepositoryProtocol"],
    "schema": ["pk_bucket", "sk_state", "parse_bucket_pk", "get_table_definition"],
}


@pytest.mark.parametrize("module", IMPORTS)
def test_names_are_imported_by_path(module: str) -> None:
    found = importlib.import_module(f"zae_limiter.{module}")
    assert found.__all__ == sorted(found.__all__)
    for name in (*IMPORTS[module], *found.__all__):
        assert hasattr(found, name), name


def test_every_error_is_imported_by_path() -> None:
    errors = importlib.import_module("zae_limiter.exceptions")
    ours = {name for name, value in vars(zae_limiter).items() if is_error(value)}
    assert set(errors.__all__) == ours


def is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def test_stores_are_told_by_their_protocol() -> None:
    with SyncRepository.open(url="memory://") as repository:
        assert isinstance(repository.scope.store, RepositoryProtocol)
    assert not isinstance(object(), RepositoryProtocol)


def test_cache_statistics_begin_at_zero() -> None:
    zeros = {"hits": 0, "misses": 0, "size": 0, "ttl": 0, "local_rejections": 0}
    assert CacheStats().as_dict() == zeros
