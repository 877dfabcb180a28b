"""Stacks that others look after: newer clients, or a deletion."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from tests.support.stacks import LocalAws
from zae_limiter import SyncRepository, __version__
from zae_limiter.infra.aws import Aws
from zae_limiter.infra.options import StackOptions
from zae_limiter.infra.stack_reading import Stack, describe_stack
from zae_limiter.infra.sync_stack_manager import SyncStackManager

pytestmark = pytest.mark.slow


def function_settings(aws: LocalAws) -> dict[str, Any]:
    name = f"{aws.stack}-aggregator"
    told: dict[str, Any] = aws.client("lambda").get_function_configuration(FunctionName=name)
    return {key: value for key, value in told.items() if key != "ResponseMetadata"}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (("1.0.0",), r"schema 1\.0\.0 is newer"),
        (("0.10.0", __version__, "99.0.0"), r"older than 99\.0\.0"),
        (("garbage",), "Cannot read the version record"),
        (("0.10.0", "99.0.0"), r"Lambda 99\.0\.0 is newer"),
    ],
)
def test_a_table_of_newer_clients_is_not_deployed_to(
    aws: LocalAws, record: tuple[str, ...], message: str
) -> None:
    aws.out("deploy", "--no-alarms", "--no-audit-archival")
    with SyncRepository.open(url=aws.url) as admin:
        admin.set_version_record(*record)
        before = function_settings(aws)
        for command in (
            ("deploy", "--lambda-memory", "512"),
            ("deploy", "--no-wait", "--lambda-memory", "512"),
            ("upgrade", "--lambda-memory", "512"),
            ("upgrade", "--lambda-only"),
        ):
            assert re.search(message, aws.error(*command)), command
        assert function_settings(aws) == before
        stored = admin.get_version_record()
        assert stored is not None
        assert (stored["schema_version"], stored["lambda_version"]) == (*record, None)[:2]
        refused = record[0] != "0.10.0" or len(record) > 2
        assert aws.run("upgrade", "--lambda-only", "--allow-downgrade").exit_code == refused
        admin.set_version_record("0.10.0", "0.1.0")
        aws.out("upgrade", "--lambda-only")
        stored = admin.get_version_record()
        assert stored is not None
        assert stored["lambda_version"] == __version__
    aws.out("delete", "--yes")


def test_a_stack_that_is_being_deleted_is_waited_for_and_created_again(
    aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On AWS a deletion takes minutes; here it is told to be under way when it begins."""
    aws.out("deploy", "--no-aggregator")
    asked: list[str] = []

    def describe(services: Aws, stack_name: str) -> Stack | None:
        stack = describe_stack(services, stack_name)
        asked.append(stack_name)
        if len(asked) > 1 or stack is None:
            return stack
        services["cloudformation"].delete_stack(StackName=stack.stack_id)
        return replace(stack, status="DELETE_IN_PROGRESS")

    monkeypatch.setattr("zae_limiter.infra.sync_stack_manager.describe_stack", describe)
    with SyncStackManager(aws.stack, aws.server.region, aws.server.url) as manager:
        options = StackOptions(enable_aggregator=False)
        assert manager.create_stack(options)["status"] == "CREATE_COMPLETE"
    aws.out("delete", "--yes")


def test_an_archive_whose_stack_is_gone_is_deleted_when_the_command_is_run_again(
    aws: LocalAws,
) -> None:
    aws.out("deploy", "--no-alarms")
    deleting = aws.run("delete", "--yes")
    (bucket,) = aws.remains()
    assert f"Archived audit events are in the bucket {bucket}" in deleting.stderr
    aws.client("s3").put_object(Bucket=bucket, Key="audit/x", Body=b"x")
    assert "there is no stack" in aws.error("delete", "--yes")
    deleted = aws.run("delete", "--yes", "--archive", "delete", "--json")
    assert deleted.exit_code == 0, deleted.output
    assert json.loads(deleted.stdout)["result"]["objects_deleted"] == 1
    assert aws.remains() == []
    other = replace(aws, stack=f"{aws.stack}-2")
    assert "there is no stack" in other.error("delete", "--yes", "--archive", "delete")
