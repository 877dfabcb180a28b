"""Mistakes that a newcomer makes get a sentence that says what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.stacks import forget_environment
from zae_limiter import (
    Limit,
    RateLimiter,
    RateLimiterUnavailable,
    Repository,
    SyncRateLimiter,
    SyncRepository,
    ValidationError,
    ZAELimiterError,
)
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.exceptions import StorageUnavailable
from zae_limiter.core.writes import Outcome, Write

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


async def test_a_closed_limiter_refuses_every_call_on_every_store(limiter: RateLimiter) -> None:
    await limiter.set_system_defaults(RPM)
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
        pass
    assert await limiter.is_available()
    await limiter.close()
    await limiter.close()
    with pytest.raises(RuntimeError, match="has been closed"):
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
            pass
    with pytest.raises(RuntimeError, match="has been closed"):
        await limiter.available("key-1", "gpt-4")
    with pytest.raises(RuntimeError, match="has been closed"):
        await limiter.set_system_defaults(RPM)
    assert not await limiter.is_available()


@pytest.mark.parametrize("parent", [None, "org"])
async def test_an_acquire_on_a_closed_limiter_logs_no_charge_of_unknown_outcome(
    limiter: RateLimiter, parent: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    await limiter.set_system_defaults(RPM)
    await limiter.create_entity("key-1", parent_id=parent, cascade=parent is not None)
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
        pass
    await limiter.close()
    for amount in (1, 2):
        with pytest.raises(RuntimeError, match="has been closed"):
            async with limiter.acquire("key-1", "gpt-4", {"rpm": amount}):
                pass
    assert [record.getMessage() for record in caplog.records] == []


def test_a_charge_whose_answer_is_lost_is_logged_if_the_limiter_is_closed_meanwhile(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    limiter = SyncRateLimiter(repository=SyncRepository.open(url="memory://"))
    limiter.set_system_defaults(RPM)
    buckets = limiter.scope.store.buckets
    deliver = buckets.write

    async def lose(address: BucketAddress, write: Write) -> Outcome:
        await deliver(address, write)
        limiter.close()
        raise StorageUnavailable("no answer", ambiguous=True)

    monkeypatch.setattr(buckets, "write", lose)
    with pytest.raises(RateLimiterUnavailable), limiter.acquire("key-1", "gpt-4", {"rpm": 2}):
        pass
    (logged,) = caplog.messages
    assert logged.startswith("Charge of unknown outcome, the tokens may stay charged: +2 rpm")


def test_a_store_that_nobody_has_named_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_environment(monkeypatch, tmp_path)
    for opening in (SyncRepository.open, SyncRepository.connect):
        with pytest.raises(ValidationError) as refused:
            opening("tenant")
        for way in ("url=", "sqlite:///limits.db", "ZAEL_URL", "stack="):
            assert way in str(refused.value)
    with pytest.raises(ValidationError, match="Invalid region: none is set"):
        SyncRepository.open(stack="my-stack")


def test_the_default_stack_that_cannot_be_reached_says_how_to_name_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_environment(monkeypatch, tmp_path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:9")
    with pytest.raises(RateLimiterUnavailable) as failed:
        SyncRepository.open(total_timeout=1)
    assert any("url= (such as sqlite:///limits.db)" in note for note in failed.value.__notes__)


def test_the_objects_of_a_session_say_what_they_are() -> None:
    with SyncRateLimiter(repository=SyncRepository.open(url="memory://")) as limiter:
        limiter.set_system_defaults(RPM)
        assert repr(limiter) == "<SyncRateLimiter on 'memory://'>"
        builder = SyncRepository.builder().namespace("tenant-a").lambda_memory(512)
        assert repr(builder) == "<SyncRepositoryBuilder namespace='tenant-a', lambda_memory=512>"
        assert repr(limiter.repository) == "<SyncRepository 'memory://', namespace 'default'>"
        with limiter.acquire("key-1", "gpt-4", {"rpm": 1}) as lease:
            assert repr(lease) == "<SyncLease of {'rpm': 1}>"
