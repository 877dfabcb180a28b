"""Stacks that others look after: newer clients, or a deletion."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from tests.support.servers.chaos import Act, ChaosProxy, Delay, Pass, Request
from tests.support.stacks import LocalAws
from zae_limiter import SyncRepository, ValidationError, __version__
from zae_limiter.backends.store_url import USUAL_TOTAL_S
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


def test_a_stack_whose_table_is_gone_says_how_to_get_one_again(aws: LocalAws) -> None:
    aws.out("deploy", "--no-alarms", "--no-audit-archival")
    aws.client("dynamodb").delete_table(TableName=aws.stack)
    before = function_settings(aws)
    for command in (
        ("deploy",),
        ("deploy", "--lambda-memory", "512"),
        ("deploy", "--no-wait", "--lambda-memory", "512"),
        ("upgrade",),
        ("upgrade", "--lambda-only"),
    ):
        message = aws.error(*command)
        assert "its table is gone" in message, command
        assert f"zae-limiter delete --name {aws.stack}" in message, command
    assert function_settings(aws) == before
    told = json.loads(aws.run("status", "--json").stdout)
    assert (told["ready"], told["table_status"]) == (False, None)
    aws.out("delete", "--yes")
    assert aws.result("deploy", "--no-aggregator")["status"] == "CREATE_COMPLETE"
    aws.out("delete", "--yes")


def test_an_archive_that_a_change_leaves_behind_is_named(aws: LocalAws) -> None:
    aws.out("deploy", "--no-alarms")
    (bucket,) = [name for name in aws.remains() if "archive" in name]
    assert f"stay in the bucket {bucket}" in aws.out("upgrade", "--no-audit-archival")
    aws.out("upgrade", "--enable-audit-archival")
    (other,) = [name for name in aws.remains() if "archive" in name and name != bucket]
    assert aws.result("deploy", "--no-aggregator")["archive_bucket"] == other
    assert "archive_bucket" not in aws.result("deploy")
    aws.out("delete", "--yes")
    assert set(aws.remains()) == {bucket, other}


def test_a_deployment_that_was_not_finished_is_not_ready(aws: LocalAws) -> None:
    with SyncStackManager(aws.stack, aws.server.region, aws.server.url) as manager:
        manager.create_stack(StackOptions(enable_alarms=False, enable_audit_archival=False))
        assert not manager.get_status().is_ready
    told = aws.run("status")
    assert told.exit_code == 1
    assert f"zae-limiter deploy --name {aws.stack}" in told.stdout
    aws.out("deploy")
    assert json.loads(aws.out("status", "--json"))["ready"]
    aws.out("delete", "--yes")


def test_a_manager_touches_no_stack_but_its_own(aws: LocalAws) -> None:
    """Programs for zae-limiter 0.17 name the stack again with each call."""
    aws.out("deploy", "--no-aggregator", "--no-alarms")
    with SyncStackManager(aws.stack, aws.server.region, aws.server.url) as manager:
        assert manager.stack_exists(aws.stack)
        assert manager.get_stack_status(aws.stack) == "CREATE_COMPLETE"
        for call in (manager.stack_exists, manager.get_stack_status, manager.delete_stack):
            with pytest.raises(ValidationError, match="is not the stack of this manager"):
                call("another-app")
        with pytest.raises(ValidationError, match="is not the Lambda of this manager"):
            manager.deploy_lambda_code("another-aggregator")
        assert manager.stack_exists()
        assert manager.delete_stack(aws.stack, wait=True)["status"] == "DELETE_COMPLETE"


@pytest.mark.parametrize(
    ("state", "remedy"),
    [
        ("DELETE_FAILED", "zae-limiter delete --name {0}"),
        ("UPDATE_ROLLBACK_FAILED", "aws cloudformation continue-update-rollback --stack-name {0}"),
    ],
)
def test_a_stack_that_cloudformation_cannot_change_says_what_to_do_first(
    aws: LocalAws, state: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.out("deploy", "--no-aggregator", "--no-alarms")

    def describe(services: Aws, stack_name: str) -> Stack | None:
        stack = describe_stack(services, stack_name)
        return None if stack is None else replace(stack, status=state)

    with monkeypatch.context() as patch:
        patch.setattr("zae_limiter.infra.sync_stack_manager.describe_stack", describe)
        for command in ("deploy", "upgrade"):
            message = aws.error(command, "--enable-alarms")
            assert state in message
            assert remedy.format(aws.stack) in message
    aws.out("delete", "--yes")


def test_a_deployment_outlasts_a_call_that_is_slower_than_clients_wait(aws: LocalAws) -> None:
    delays = iter([Delay(1.2 * USUAL_TOTAL_S)])

    def choose(request: Request) -> Act:
        is_read = b"Action=" not in request.body and request.operation == "GetItem"
        return next(delays, Pass()) if is_read else Pass()

    with ChaosProxy(aws.server.url) as proxy:
        proxy.use_for(choose)
        through = replace(aws, server=replace(aws.server, url=proxy.url))
        through.out("deploy", "--no-aggregator", "--no-alarms", "--no-iam")
    assert next(delays, None) is None
    aws.out("delete", "--yes")
