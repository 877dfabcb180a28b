"""A failure is told by the resource that failed first, and a plan by whether data would go."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from click.testing import CliRunner
from rich.console import Console

from tests.support.stacks import forget_environment
from zae_limiter import RateLimiter, StackManager, StackOperationError, ValidationError
from zae_limiter.cli import cli
from zae_limiter.cli.stack_report import draw_events, event_line
from zae_limiter.core.deployed import LimiterInfo
from zae_limiter.infra.change_sets import PlannedChange, was_overtaken
from zae_limiter.infra.stack_events import StackEvent, first_failure

STACK = "AWS::CloudFormation::Stack"


def event(
    logical_id: str, status: str, reason: str = "", kind: str = "AWS::SQS::Queue"
) -> StackEvent:
    return StackEvent("2026-01-01T00:00:00+00:00", logical_id, kind, status, reason)


def test_the_first_failure_is_the_cause_and_no_consequence() -> None:
    events = [
        event("Table", "CREATE_IN_PROGRESS"),
        event("app", "CREATE_FAILED", "The following resource(s) failed: [Queue]", STACK),
        event("Alarm", "CREATE_FAILED", "Resource creation cancelled"),
        event("Queue", "CREATE_FAILED", "no permission"),
        event("Role", "CREATE_FAILED", "exists"),
        event("app", "ROLLBACK_IN_PROGRESS", kind=STACK),
    ]
    assert first_failure(events) == "Queue (AWS::SQS::Queue) CREATE_FAILED: no permission"
    assert first_failure(events[:1]) == ""
    assert first_failure(events[2:3]).startswith("Alarm")


@pytest.mark.parametrize(
    ("action", "logical_id", "replacement", "loses"),
    [
        ("Modify", "RateLimitsTable", "False", False),
        ("Modify", "RateLimitsTable", "Conditional", True),
        ("Modify", "RateLimitsTable", "True", True),
        ("Remove", "RateLimitsTable", "False", True),
        ("Add", "RateLimitsTable", "False", False),
        ("Remove", "AggregatorFunction", "False", False),
        ("Modify", "AggregatorEventSourceMapping", "Conditional", False),
    ],
)
def test_a_plan_loses_data_if_the_table_goes(
    action: str, logical_id: str, replacement: str, loses: bool
) -> None:
    change = PlannedChange(action, logical_id, "AWS::Some::Thing", replacement)
    assert change.loses_data is loses


def test_events_are_told_in_lines_and_drawn_in_rows() -> None:
    failed = event("Queue", "CREATE_FAILED", "no permission")
    assert event_line(failed).endswith("CREATE_FAILED        Queue: no permission")
    console = Console(width=80, record=True)
    console.print(draw_events([event("Queue", "CREATE_COMPLETE")]))
    assert "Queue" in (text := console.export_text())
    assert "SQS::Queue" in text
    assert "CREATE_COMPLETE" in text


@pytest.mark.parametrize(
    ("status", "healthy", "busy", "failed"),
    [
        ("CREATE_COMPLETE", True, False, False),
        ("UPDATE_COMPLETE", True, False, False),
        ("CREATE_IN_PROGRESS", False, True, False),
        ("UPDATE_ROLLBACK_COMPLETE", False, False, True),
        ("DELETE_FAILED", False, False, True),
    ],
)
def test_a_limiters_state_follows_from_its_status(
    status: str, healthy: bool, busy: bool, failed: bool
) -> None:
    info = LimiterInfo("app", "app", "us-east-1", status, "2026-01-01T00:00:00+00:00")
    assert (info.is_healthy, info.is_in_progress, info.is_failed) == (healthy, busy, failed)


def test_wrong_names_are_refused_before_any_call() -> None:
    with pytest.raises(ValidationError):
        StackManager("no_underscore")
    assert callable(RateLimiter.list_deployed)


@pytest.mark.parametrize(
    ("code", "message", "overtaken"),
    [
        ("AlreadyExistsException", "Stack [my-app] already exists", True),
        ("ValidationError", "Stack [my-app] already exists", True),
        ("InvalidChangeSetStatus", "it was executed", True),
        ("ValidationError", "a template is wrong", False),
        ("AccessDenied", "no", False),
    ],
)
def test_a_deployer_that_another_overtook_is_told_from_one_that_failed(
    code: str, message: str, overtaken: bool
) -> None:
    error = StackOperationError("my-app", message)
    error.__cause__ = ClientError({"Error": {"Code": code, "Message": message}}, "CreateChangeSet")
    assert was_overtaken(error) is overtaken


@pytest.mark.parametrize("variable", [False, True])
@pytest.mark.parametrize("command", ["status", "deploy", "upgrade", "delete", "check"])
def test_an_endpoint_that_is_none_is_an_error_of_every_command(
    command: str, variable: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    forget_environment(monkeypatch, tmp_path)
    if variable:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "nonsense")
    options = () if variable else ("--endpoint-url", "nonsense")
    place = ("--name", "my-app", "--region", "us-east-1")
    result = CliRunner().invoke(cli, [command, *place, *options])
    assert result.exit_code == 1, result.exception
    assert "must be like https://host" in result.stderr
