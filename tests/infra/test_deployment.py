"""The whole life of stacks in a local AWS: deployed, used, counted, upgraded, deleted."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.dynamodb.test_stream import snapshots_of, totals, use
from tests.support.aggregators import Aggregator, checkpoints, wait_until
from tests.support.programs import hearing_interrupts
from tests.support.servers.chaos import Act, ChaosProxy, Hold, Pass, Request
from tests.support.servers.tables import table_client
from tests.support.stacks import LocalAws
from tests.support.stream_client import LIMITS, NAMESPACE, RESOURCE
from tests.support.table_crowd import ROOT
from zae_limiter import Limit, StackOperationError, SyncRateLimiter, SyncRepository, __version__
from zae_limiter.cli import cli
from zae_limiter.core.windows import WINDOW_TYPES
from zae_limiter.infra.change_sets import plan_changes
from zae_limiter.infra.options import StackOptions
from zae_limiter.infra.stack_events import StackEvent
from zae_limiter.infra.stack_manager import StackManager
from zae_limiter.infra.sync_stack_manager import SyncStackManager
from zae_limiter.infra.template import build_template

pytestmark = pytest.mark.slow
STEPS = 200


@pytest.fixture
def repository(aws: LocalAws) -> Iterator[SyncRepository]:
    """Entities that cascade, in the stack's table, which must exist."""
    aws.out("deploy")
    with SyncRepository.open(NAMESPACE, url=aws.url) as opened:
        opened.set_resource_defaults(RESOURCE, LIMITS)
        opened.create_entity("org")
        for child in ("child-1", "child-2"):
            opened.create_entity(child, parent_id="org", cascade=True)
        yield opened


def test_a_stack_lives_from_deploy_to_delete(
    aws: LocalAws, repository: SyncRepository, tmp_path: Path
) -> None:
    assert aws.result("deploy")["status"] == "unchanged"
    with table_client(aws.server) as client:
        account = use(aws.table(client), tmp_path, STEPS)
    counted = +account.charged
    wait_until(lambda: +totals(snapshots_of(repository, "daily")) == counted, "usage is counted")
    assert +totals(snapshots_of(repository, "hourly")) == counted

    told = json.loads(aws.out("doctor", "--json", "-N", NAMESPACE))["findings"]
    states = {each["check"]: each["state"] for each in told}
    assert (states["table"], states["lambda"]) == ("ok", "ok"), told

    upgraded = aws.result("upgrade", "--lambda-memory", "512")
    assert upgraded["status"] == "UPDATE_COMPLETE"
    assert upgraded["lambda"]["status"] == "unchanged"
    function = f"{aws.stack}-aggregator"
    told = aws.client("lambda").get_function_configuration(FunctionName=function)
    assert told["MemorySize"] == 512
    assert +totals(snapshots_of(repository, "daily")) == counted
    assert set(repository.get_resource_defaults(RESOURCE)) == set(LIMITS)

    status = json.loads(aws.out("status", "--json"))
    assert status["ready"]
    assert status["aggregator_enabled"]
    assert (status["stack_status"], status["table_status"]) == ("UPDATE_COMPLETE", "ACTIVE")
    assert status["lambda_version"] == __version__
    (listed,) = [each for each in list_stacks(aws) if each["user_name"] == aws.stack]
    assert listed["healthy"]
    assert listed["version"] == __version__

    deleted = aws.result("delete", "--yes", "--archive", "delete")
    assert deleted["status"] == "DELETE_COMPLETE"
    assert aws.remains() == []
    assert not [each for each in list_stacks(aws) if each["user_name"] == aws.stack]


def list_stacks(aws: LocalAws) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(aws.out_anywhere("list", "--json"))
    return found


def processed_by_lambda(aws: LocalAws) -> int:
    """How many changes the log of the Lambda tells of."""
    group = f"/aws/lambda/{aws.stack}-aggregator"
    pages = aws.client("logs").get_paginator("filter_log_events").paginate(logGroupName=group)
    lines = [event["message"] for page in pages for event in page["events"]]
    return sum(json.loads(line).get("processed", 0) for line in lines if line.startswith("{"))


def test_a_lambda_and_processes_that_read_one_stream_count_each_write_once(
    aws: LocalAws, repository: SyncRepository, tmp_path: Path
) -> None:
    windows = ("--windows", "hourly,daily")
    with table_client(aws.server) as client:
        table = aws.table(client)
        readers = [Aggregator(table, tmp_path, *windows) for _ in range(2)]
        try:
            account = use(table, tmp_path, STEPS)
            wait_until(lambda: all(reader.has_started() for reader in readers), "readers start")
            assert readers[0].end(signal.SIGKILL) == -signal.SIGKILL
            assert readers[1].end() == 0, readers[1].errors()
        finally:
            for reader in readers:
                reader.process.kill()
        for checkpoint in checkpoints(table):
            # Everything is delivered again.
            table.call("DeleteItem", Key={"PK": checkpoint["PK"], "SK": checkpoint["SK"]})
        last = Aggregator(table, tmp_path, "--once", *windows)
        assert last.wait() == 0, last.errors()
    counted = +account.charged
    for window in WINDOW_TYPES[:2]:
        assert +totals(snapshots_of(repository, window)) == counted
    changes = last.lines()[-1]["processed"]
    wait_until(lambda: processed_by_lambda(aws) >= changes, "the Lambda has seen everything, too")
    for window in WINDOW_TYPES[:2]:
        assert +totals(snapshots_of(repository, window)) == counted


def test_a_stack_without_an_aggregator_is_counted_by_a_process(
    aws: LocalAws, tmp_path: Path
) -> None:
    result = aws.result("deploy", "--no-aggregator", "--audit-retention-days", "30")
    assert result["status"] == "CREATE_COMPLETE"
    assert "lambda" not in result
    with table_client(aws.server) as client:
        table = aws.table(client)
        with SyncRepository.open(url=aws.url) as repository:
            limiter = SyncRateLimiter(repository)
            limiter.set_system_defaults([Limit.per_minute("rpm", 100)])
            for _ in range(5):
                with limiter.acquire("key", RESOURCE, {"rpm": 2}):
                    pass
            reader = Aggregator(table, tmp_path, "--once")
            assert reader.wait() == 0, reader.errors()
            (snapshot,) = snapshots_of(repository, "monthly")
            assert (snapshot.counters, snapshot.total_events) == ({"rpm": 10}, 5)
        kept = [item["ttl"]["N"] for item in table.items() if "/AUDIT#" in item["PK"]["S"]]
        assert {round((int(ttl) - time.time()) / 86_400) for ttl in kept} == {30}
    status = json.loads(aws.out("status", "--json"))
    assert status["ready"]
    assert not status["aggregator_enabled"]
    assert status["lambda_version"] is None
    aws.out("delete", "--yes")
    assert aws.remains() == []


def test_a_deploy_that_fails_is_rolled_back_and_says_which_resource_failed_first(
    aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build_broken(options: StackOptions, *others: Any) -> dict[str, Any]:
        template = build_template(options, *others)
        template["Resources"]["Broken"] = {
            "Type": "AWS::Logs::LogStream",
            "DependsOn": ["RateLimitsTable", "AuditArchiveBucket", "AggregatorFunction"],
            "Properties": {"LogGroupName": "/nowhere"},
        }
        return template

    with monkeypatch.context() as patch:
        patch.setattr("zae_limiter.infra.sync_stack_manager.build_template", build_broken)
        message = aws.error("deploy")
    assert "Broken (AWS::Logs::LogStream) CREATE_FAILED: " in message
    assert "ROLLBACK_COMPLETE" in message
    assert aws.remains() == [aws.stack]
    assert json.loads(aws.run("status", "--json").stdout)["ready"] is False
    assert aws.result("deploy")["status"] == "CREATE_COMPLETE"
    assert json.loads(aws.out("status", "--json"))["ready"]
    aws.out("delete", "--yes", "--archive", "delete")


@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("system", "get-defaults"),
        ("usage", "list", "-e", "key"),
        ("namespace", "list"),
        ("upgrade",),
        ("upgrade", "--lambda-only"),
        ("delete", "--yes"),
    ],
    ids=" ".join,
)
def test_a_typo_in_the_name_is_an_error_and_creates_nothing(
    aws: LocalAws, command: tuple[str, ...]
) -> None:
    assert f"No limiter found at '{aws.stack}'" in aws.error(*command)
    assert aws.remains() == []


def test_ctrl_c_says_what_goes_on_and_deploying_again_goes_on_from_there(aws: LocalAws) -> None:
    executed, released = threading.Event(), threading.Event()

    def choose(request: Request) -> Act:
        if b"Action=ExecuteChangeSet" in request.body:
            executed.set()
        elif executed.is_set() and b"Action=DescribeStacks" in request.body:
            return Hold(released)
        return Pass()

    with ChaosProxy(aws.server.url) as proxy:
        proxy.use_for(choose)
        through = replace(aws, server=replace(aws.server, url=proxy.url))
        program = [*hearing_interrupts(), sys.executable, "-m", "zae_limiter.cli"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        process = subprocess.Popen(
            [*program, "deploy", *through.place],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert executed.wait(60)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        released.set()
    assert process.returncode == 130
    assert "goes on" in errors
    assert f"zae-limiter status --name {aws.stack}" in errors
    assert "Traceback" not in errors
    result = aws.result("deploy")
    assert result["status"] == "unchanged"
    assert result["lambda"]["status"] == "deployed"
    assert json.loads(aws.out("status", "--json"))["ready"]
    aws.out("delete", "--yes", "--archive", "delete")


def test_a_protected_table_is_deleted_only_after_its_protection(aws: LocalAws) -> None:
    aws.out("deploy", "--no-aggregator", "--enable-deletion-protection")
    assert "protected" in aws.error("delete", "--yes")
    assert json.loads(aws.out("status", "--json"))["ready"]
    aws.out("upgrade", "--no-deletion-protection")
    aws.out("delete", "--yes")
    assert aws.remains() == []


def test_an_archive_stays_when_its_stack_goes_unless_it_is_deleted_too(aws: LocalAws) -> None:
    aws.out("deploy", "--no-alarms")
    kept = aws.result("delete", "--yes")["archive_bucket"]
    assert aws.remains() == [kept]
    aws.client("s3").delete_bucket(Bucket=kept)


def test_stacks_and_tables_of_others_are_left_alone(aws: LocalAws) -> None:
    queue = {"Resources": {"Queue": {"Type": "AWS::SQS::Queue"}}}
    cloudformation = aws.client("cloudformation")
    cloudformation.create_stack(StackName=aws.stack, TemplateBody=json.dumps(queue))
    wait_until(lambda: "COMPLETE" in stack_status(aws), "the stack is created")
    assert "not a limiter's" in aws.error("deploy")
    assert "not a limiter's" in aws.error("upgrade")
    assert "not a limiter's" in aws.error("delete", "--yes")
    assert stack_status(aws) == "CREATE_COMPLETE"
    cloudformation.delete_stack(StackName=aws.stack)
    other = replace(aws, stack=f"{aws.stack}-2")
    SyncRepository.open(url=other.url, create=True).close()
    assert "belongs to no stack" in other.error("deploy")
    assert json.loads(other.out("status", "--json"))["stack_status"] is None


def test_a_stack_that_others_deploy_is_completed_and_else_left_alone(aws: LocalAws) -> None:
    template = aws.out_anywhere("cfn-template", "--no-alarms", "--json", placed=False)
    aws.client("cloudformation").create_stack(
        StackName=aws.stack, TemplateBody=template, Capabilities=["CAPABILITY_NAMED_IAM"]
    )
    wait_until(lambda: stack_status(aws) == "CREATE_COMPLETE", "the stack is created")
    completed = aws.result("upgrade", "--lambda-only")
    assert completed["lambda"]["status"] == "deployed"
    assert aws.result("upgrade", "--lambda-only")["lambda"]["status"] == "unchanged"
    status = json.loads(aws.out("status", "--json"))
    assert status["ready"]
    assert status["lambda_version"] == __version__
    SyncRepository.connect(url=aws.url).close()
    for command in (("deploy",), ("upgrade",), ("delete", "--yes")):
        assert "not a limiter's" in aws.error(*command)
    aws.client("cloudformation").delete_stack(StackName=aws.stack)


def stack_status(aws: LocalAws) -> str:
    (stack,) = aws.client("cloudformation").describe_stacks(StackName=aws.stack)["Stacks"]
    status: str = stack["StackStatus"]
    return status


def test_a_change_that_would_replace_the_table_is_refused(aws: LocalAws) -> None:
    aws.out("deploy", "--no-aggregator")
    client = aws.client("cloudformation")
    other = build_template(StackOptions(enable_aggregator=False))
    other["Resources"]["RateLimitsTable"]["Properties"]["TableName"] = "another"
    without = build_template(StackOptions(enable_aggregator=False))
    del without["Resources"]["RateLimitsTable"]
    without["Outputs"] = {}
    before = client.list_change_sets(StackName=aws.stack)["Summaries"]
    for template in (other, {**without, "Resources": {"Queue": {"Type": "AWS::SQS::Queue"}}}):
        with pytest.raises(StackOperationError, match="Nothing was changed"):
            plan_changes(client, aws.stack, "UPDATE", template, {})
    assert client.list_change_sets(StackName=aws.stack)["Summaries"] == before
    assert json.loads(aws.out("status", "--json"))["ready"]
    aws.out("delete", "--yes")


async def test_stacks_are_managed_from_asyncio(aws: LocalAws) -> None:
    options = StackOptions(enable_aggregator=False, enable_alarms=False, tags={"team": "a"})
    seen: list[StackEvent] = []
    async with StackManager(aws.stack, aws.server.region, aws.server.url) as manager:
        assert not await manager.stack_exists()
        result = await manager.deploy(options, seen.append)
        assert result["status"] == "CREATE_COMPLETE"
        assert "RateLimitsTable" in {event.logical_id for event in seen}
        assert await manager.get_stack_options() == options
        assert (await manager.get_status()).is_ready
        assert (await manager.upgrade({"enable_alarms": True}))["status"] == "UPDATE_COMPLETE"
        assert await manager.get_stack_status() == "UPDATE_COMPLETE"
        assert (await manager.delete_stack())["status"] == "DELETE_COMPLETE"
        assert (await manager.delete_stack())["status"] == "absent"
    assert aws.remains() == []


async def test_a_wait_that_is_cancelled_ends_at_once_and_aws_goes_on(aws: LocalAws) -> None:
    executed, released = threading.Event(), threading.Event()

    def choose(request: Request) -> Act:
        if b"Action=ExecuteChangeSet" in request.body:
            executed.set()
        elif executed.is_set() and b"Action=DescribeStackEvents" in request.body:
            return Hold(released)
        return Pass()

    with ChaosProxy(aws.server.url) as proxy:
        proxy.use_for(choose)
        async with StackManager(aws.stack, aws.server.region, proxy.url) as manager:
            deploying = asyncio.create_task(
                manager.create_stack(StackOptions(enable_aggregator=False))
            )
            await asyncio.to_thread(executed.wait, 60)
            deploying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await deploying
            released.set()
            assert await manager.create_stack(StackOptions(enable_aggregator=False))
    assert stack_status(aws) == "CREATE_COMPLETE"
    aws.out("delete", "--yes")


def test_a_deploy_that_does_not_wait_is_finished_by_the_next_one(aws: LocalAws) -> None:
    assert aws.result("deploy", "--no-wait", "--no-alarms")["status"] == "started"
    result = aws.result("deploy")
    assert result["status"] == "unchanged"
    assert result["lambda"]["status"] == "deployed"
    assert result["lambda"]["esm_ready"]
    assert aws.result("delete", "--yes", "--no-wait")["status"] == "started"
    wait_until(lambda: not [n for n in aws.remains() if "archive" not in n], "all is gone")


def test_a_creation_that_cannot_be_planned_leaves_no_stack(
    aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build_unplannable(options: StackOptions, *others: Any) -> dict[str, Any]:
        template = build_template(options, *others)
        template["Resources"]["Broken"] = {"Type": "AWS::Nothing::Known"}
        return template

    monkeypatch.setattr("zae_limiter.infra.sync_stack_manager.build_template", build_unplannable)
    assert "Nothing::Known" in aws.error("deploy")
    assert aws.remains() == []


def test_stacks_of_several_regions_are_listed_with_their_region(aws: LocalAws) -> None:
    other = replace(aws, server=replace(aws.server, region="eu-west-1"))
    for each in (aws, other):
        each.out("deploy", "--no-aggregator", "--no-alarms", "--no-iam")
    regions = ["--region", "us-east-1", "--region", "eu-west-1"]
    result = CliRunner().invoke(cli, ["list", "--json", *regions, "--endpoint-url", aws.server.url])
    found = [each for each in json.loads(result.stdout) if each["user_name"] == aws.stack]
    assert [each["region"] for each in found] == ["us-east-1", "eu-west-1"]
    for each in (aws, other):
        each.out("delete", "--yes")


def test_code_that_is_not_this_versions_is_replaced(aws: LocalAws) -> None:
    aws.out("deploy", "--no-alarms", "--no-audit-archival")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("index.py", "")
    client, name = aws.client("lambda"), f"{aws.stack}-aggregator"
    for command in (("upgrade",), ("upgrade", "--lambda-only"), ("deploy",)):
        client.update_function_code(FunctionName=name, ZipFile=packed.getvalue())
        code = aws.result(*command)["lambda"]
        assert code["status"] == "deployed"
        told = client.get_function_configuration(FunctionName=name)["CodeSha256"]
        assert base64.b64decode(told).hex() == code["code_sha256"]
        assert aws.result(*command)["lambda"]["status"] == "unchanged"
    aws.out("delete", "--yes")


def test_an_aggregator_can_be_added_and_removed(aws: LocalAws) -> None:
    aws.out("deploy", "--no-aggregator", "--no-audit-archival")
    added = aws.result("deploy", "--enable-aggregator")
    assert added["lambda"]["status"] == "deployed"
    assert json.loads(aws.out("status", "--json"))["lambda_version"] == __version__
    assert "lambda" not in aws.result("upgrade", "--no-aggregator")
    status = json.loads(aws.out("status", "--json"))
    assert (status["aggregator_enabled"], status["lambda_version"]) == (False, None)
    aws.out("delete", "--yes")
    assert aws.remains() == []


def test_deployers_that_race_all_get_what_they_asked_for(aws: LocalAws) -> None:
    def deploy(options: StackOptions) -> str:
        with SyncStackManager(aws.stack, aws.server.region, aws.server.url) as manager:
            status: str = manager.deploy(options)["status"]
            return status

    with ThreadPoolExecutor(3) as pool:
        for options, done in (
            (StackOptions(), "CREATE_COMPLETE"),
            (StackOptions(lambda_memory=512), "UPDATE_COMPLETE"),
        ):
            # A deployer that was overtaken in the midst finds nothing left to change.
            assert set(pool.map(deploy, [options] * 3)) <= {done, "unchanged"}
            with SyncStackManager(aws.stack, aws.server.region, aws.server.url) as manager:
                assert manager.get_stack_options() == options
    status = json.loads(aws.out("status", "--json"))
    assert status["ready"]
    aws.out("delete", "--yes", "--archive", "delete")
    assert aws.remains() == []
