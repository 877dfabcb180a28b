"""Opening a repository step by step."""

from __future__ import annotations

from pathlib import Path

import pytest

from zae_limiter import (
    Limit,
    NamespaceNotFoundError,
    Repository,
    SyncRateLimiter,
    SyncRepository,
    ValidationError,
)


async def test_builder_steps_set_the_arguments_of_open(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/limits.db"
    builder = Repository.builder().url(url).config_cache_ttl(5).bucket_ttl_multiplier(3)
    repository = await builder.coalesce(False).refusal_cache_ttl(0).linger_ms(1).build()
    assert repository.namespace_name == "default"
    assert repository.get_cache_stats().ttl_seconds == 5
    assert repository.scope.settings.bucket_ttl_multiplier == 3
    assert not repository.scope.settings.coalesces
    await repository.close()


def test_a_builder_of_an_unregistered_namespace_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/limits.db"
    with pytest.raises(NamespaceNotFoundError):
        SyncRepository.builder().url(url).namespace("team").build()
    first = SyncRepository.builder().url(url).parallel_mode("serial").build()
    first.register_namespace("team")
    first.close()
    team = SyncRepository.builder().url(url).namespace("team").build()
    assert team.namespace_name == "team"
    team.close()


def test_a_builder_stores_its_mode_and_keeps_the_limits(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/limits.db"
    limiter = SyncRateLimiter(repository=SyncRepository.open(url=url))
    limiter.set_system_defaults([Limit.per_minute("rpm", 5)])
    limiter.close()
    repository = SyncRepository.builder().url(url).on_unavailable("allow").build()
    assert repository.get_system_defaults() == ([Limit.per_minute("rpm", 5)], "allow")
    repository.close()


def test_a_builder_refuses_bad_arguments_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="namespace"):
        SyncRepository.builder().namespace("#")
    with pytest.raises(ValidationError, match="on_unavailable"):
        SyncRepository.builder().on_unavailable("maybe")  # type: ignore[arg-type]
