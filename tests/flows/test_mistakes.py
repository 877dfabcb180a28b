"""Mistakes that a newcomer makes get a sentence that says what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zae_limiter import (
    Limit,
    RateLimiter,
    Repository,
    SyncRateLimiter,
    SyncRepository,
    ValidationError,
    ZAELimiterError,
)

RPM = [Limit.per_minute("rpm", 3)]


async def test_an_acquisition_that_is_never_entered_warns() -> None:
    async with RateLimiter(repository=await Repository.open(url="memory://")) as limiter:
        with pytest.warns(ResourceWarning, match=r"never entered: write `async with limiter\.acq"):
            limiter.acquire("key-1", "gpt-4", {"rpm": 1})


def test_a_blocking_acquisition_that_is_never_entered_warns() -> None:
    with SyncRateLimiter(repository=SyncRepository.open(url="memory://")) as limiter:
        with pytest.warns(ResourceWarning, match=r"'key-1', 'gpt-4'> was never .* `with limiter"):
            limiter.acquire("key-1", "gpt-4", {"rpm": 1})
        with pytest.raises(ValidationError), limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
            pass  # no limits are configured: this one was entered, so it does not warn


def test_a_repository_that_was_not_awaited_is_named() -> None:
    opening: Any = Repository.open(url="memory://")
    with pytest.raises(ValidationError, match=r"write `await Repository\.open\(\.\.\.\)`"):
        RateLimiter(repository=opening)


def test_a_repository_of_the_other_driver_is_refused() -> None:
    blocking: Any = SyncRepository.open(url="memory://")
    with pytest.raises(ValidationError, match="must be a Repository, not a SyncRepository"):
        RateLimiter(repository=blocking)
    blocking.close()
    number: Any = 5
    with pytest.raises(ValidationError, match="must be a SyncRepository, not a int"):
        SyncRateLimiter(repository=number)


@pytest.mark.parametrize("numbers", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1.5, 1, 1), (-1, 1, 1)])
def test_a_bad_limit_is_an_error_of_the_package_and_a_value_error(numbers: Any) -> None:
    with pytest.raises(ZAELimiterError) as refused:
        Limit("rpm", *numbers)
    assert isinstance(refused.value, ValueError)


@pytest.mark.parametrize("url", ["memory://", "sqlite:///limits.db"])
def test_a_closed_limiter_refuses_every_call(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    limiter = SyncRateLimiter(repository=SyncRepository.open(url=url))
    limiter.set_system_defaults(RPM)
    with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
        pass
    limiter.close()
    limiter.close()
    with (
        pytest.raises(RuntimeError, match="has been closed"),
        limiter.acquire("key-1", "gpt-4", {"rpm": 1}),
    ):
        pass
    with pytest.raises(RuntimeError, match="has been closed"):
        limiter.available("key-1", "gpt-4")
    with pytest.raises(RuntimeError, match="has been closed"):
        limiter.set_system_defaults(RPM)


def test_the_objects_of_a_session_say_what_they_are() -> None:
    with SyncRateLimiter(repository=SyncRepository.open(url="memory://")) as limiter:
        limiter.set_system_defaults(RPM)
        assert repr(limiter) == "<SyncRateLimiter on 'memory://'>"
        assert repr(limiter.repository) == "<SyncRepository 'memory://', namespace 'default'>"
        with limiter.acquire("key-1", "gpt-4", {"rpm": 1}) as lease:
            assert repr(lease) == "<SyncLease of {'rpm': 1}>"
