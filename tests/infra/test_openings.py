"""Repositories that deploy their stack, or update its Lambda, when they are opened."""

from __future__ import annotations

import logging
from dataclasses import fields

import pytest

from tests.support.stacks import LocalAws
from zae_limiter import (
    Limit,
    RateLimiter,
    Repository,
    RepositoryBuilder,
    SyncRepository,
    ValidationError,
    __version__,
)
from zae_limiter.infra.options import StackOptions
from zae_limiter.infra.sync_stack_manager import SyncStackManager

pytestmark = pytest.mark.slow


def stack_status(aws: LocalAws) -> str | None:
    with SyncStackManager(aws.stack, aws.server.region, aws.server.url) as manager:
        return manager.get_stack_status()


async def test_a_builder_deploys_the_stack_that_its_steps_describe(aws: LocalAws) -> None:
    builder = Repository.builder().stack(aws.stack).region(aws.server.region)
    described = builder.endpoint_url(aws.server.url).enable_aggregator(False).tags({"team": "a"})
    async with await described.build() as repository:
        assert stack_status(aws) == "CREATE_COMPLETE"
        await repository.set_system_defaults([Limit.per_minute("rpm", 1)])
        assert await repository.get_namespace("default")
    with SyncStackManager(aws.stack, aws.server.region, aws.server.url) as manager:
        options = manager.get_stack_options()
    assert options == StackOptions(enable_aggregator=False, tags={"team": "a"})


async def test_a_limiter_with_stack_options_deploys_the_stack_when_it_is_entered(
    aws: LocalAws,
) -> None:
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        limiter = RateLimiter(
            name=aws.stack,
            region=aws.server.region,
            endpoint_url=aws.server.url,
            stack_options=StackOptions(enable_aggregator=False),
        )
    async with limiter:
        assert stack_status(aws) == "CREATE_COMPLETE"
        with pytest.warns(DeprecationWarning, match="ensure_infrastructure"):
            await limiter.repository.ensure_infrastructure()
        assert await limiter.is_available(timeout=30)


def lambda_version(repository: SyncRepository) -> str | None:
    record = repository.get_version_record()
    assert record is not None
    version: str | None = record["lambda_version"]
    return version


def test_an_older_lambda_is_updated_when_that_is_asked_for(
    aws: LocalAws, caplog: pytest.LogCaptureFixture
) -> None:
    aws.out("deploy")
    with SyncRepository.open(url=aws.url) as admin:
        admin.set_version_record("0.10.0", lambda_version="0.17.0")
        SyncRepository.open(url=aws.url).close()
        SyncRepository.connect(url=aws.url).close()
        assert lambda_version(admin) == "0.17.0"
        SyncRepository.open(url=aws.url, auto_update=True).close()
        assert lambda_version(admin) == __version__
        admin.set_version_record("0.10.0", lambda_version="0.17.0")
        name = f"{aws.stack}-aggregator"
        aws.client("lambda").delete_function(FunctionName=name)
        with caplog.at_level(logging.WARNING, "zae_limiter"):
            SyncRepository.open(url=aws.url, auto_update=True).close()
        assert "was not updated" in caplog.text
        assert lambda_version(admin) == "0.17.0"


def test_a_builder_has_a_step_for_every_option_of_a_stack() -> None:
    for field in fields(StackOptions):
        assert hasattr(RepositoryBuilder, field.name), field.name


def test_steps_of_a_stack_go_with_no_other_store() -> None:
    with pytest.raises(ValidationError, match="names no stack to deploy"):
        SyncRepository.builder().url("memory://").lambda_memory(512).build()
    with pytest.raises(ValueError, match="lambda_memory"):
        SyncRepository.builder().lambda_memory(1).build()
    with pytest.warns(DeprecationWarning, match="each option has a step"):
        builder = SyncRepository.builder().stack_options(StackOptions(lambda_memory=512))
    with pytest.raises(ValidationError, match="names no stack to deploy"):
        builder.url("memory://").build()
