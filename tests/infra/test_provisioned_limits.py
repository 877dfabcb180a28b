"""Declared limits as a stack of their own in a local AWS: the Lambda, and CloudFormation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.aggregators import wait_until
from tests.support.stacks import LocalAws
from zae_limiter import Limit, SyncRateLimiter, SyncRepository

pytestmark = pytest.mark.slow
MANIFEST = """\
namespace: default
system: {on_unavailable: block, limits: {rpm: 60}}
resources: {gpt-4: {limits: {rpm: 500/min; burst 700}}}
entities:
  acme: {name: "yes", metadata: {tier: 1, deep: [true, null]}, limits: {rpm: 5}}
  key: {parent: acme, cascade: true}
"""


class LimitsStack:
    """A stack that has declared limits and nothing else."""

    def __init__(self, aws: LocalAws, folder: Path) -> None:
        self.aws = aws
        self.name = f"{aws.stack}-limits"
        self.file = folder / "limits.yaml"
        self.client = aws.client("cloudformation")

    def template(self, manifest: str) -> str:
        self.file.write_text(manifest, encoding="utf-8")
        options = ("--name", self.aws.stack, "--json")
        return self.aws.out_anywhere(
            "limits", "cfn-template", str(self.file), *options, placed=False
        )

    def create(self, manifest: str) -> str:
        self.client.create_stack(StackName=self.name, TemplateBody=self.template(manifest))
        return self.settled()

    def update(self, manifest: str) -> str:
        self.client.update_stack(StackName=self.name, TemplateBody=self.template(manifest))
        return self.settled()

    def delete(self) -> None:
        self.client.delete_stack(StackName=self.name)
        wait_until(lambda: self._status() in (None, "DELETE_COMPLETE"), "the stack is deleted")

    def settled(self) -> str:
        wait_until(lambda: not str(self._status()).endswith("IN_PROGRESS"), "the stack rests")
        return str(self._status())

    def _status(self) -> str | None:
        found = self.client.describe_stacks()["Stacks"]
        return next((s["StackStatus"] for s in found if s["StackName"] == self.name), None)

    def reasons(self) -> str:
        events = self.client.describe_stack_events(StackName=self.name)["StackEvents"]
        return "\n".join(each.get("ResourceStatusReason", "") for each in events)


def test_declared_limits_live_and_end_with_their_stack(aws: LocalAws, tmp_path: Path) -> None:
    deployed = aws.result("deploy", "--no-aggregator", "--no-alarms")
    assert deployed["provisioner"]["status"] == "deployed"
    assert aws.result("deploy", "--no-aggregator", "--no-alarms")["status"] == "unchanged"
    stack = LimitsStack(aws, tmp_path)
    assert stack.create(MANIFEST) == "CREATE_COMPLETE", stack.reasons()
    assert plan(aws, stack)["changes"] == []
    with SyncRepository.connect(url=aws.url) as repository:
        found = repository.get_entity("acme")
        assert found is not None
        assert (found.name, found.metadata) == ("yes", {"tier": 1, "deep": [True, None]})
        with SyncRateLimiter(repository).acquire("key", "gpt-4", {"rpm": 5}):
            pass
        author = repository.get_audit_events("acme")[0].principal or ""
        assert author.startswith("arn:aws:cloudformation")

        assert stack.update(MANIFEST.replace("rpm: 5}", "rpm: 6}")) == "UPDATE_COMPLETE"
        assert [limit.capacity for limit in repository.get_limits("acme")] == [6]

        repository.set_limits("acme", [Limit.per_minute("rpm", 7)])
        status = stack.update(MANIFEST.replace("rpm: 5}", "rpm: 8}"))
        assert status != "UPDATE_COMPLETE"
        assert "was changed by somebody else" in stack.reasons()
        assert [limit.capacity for limit in repository.get_limits("acme")] == [7]

        stack.delete()
        assert repository.get_system_defaults()[0] == []
        assert repository.list_resources_with_defaults() == []
        # Somebody else has changed it, so that it is theirs now.
        assert [limit.capacity for limit in repository.get_limits("acme")] == [7]
    aws.out("delete", "--yes")
    assert aws.remains() == []


def plan(aws: LocalAws, stack: LimitsStack) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(aws.out("limits", "plan", str(stack.file), "--json"))
    return found


def test_a_stack_of_limits_that_cannot_be_fails_and_leaves_what_was_there(
    aws: LocalAws, tmp_path: Path
) -> None:
    aws.out("deploy", "--no-aggregator", "--no-alarms")
    stack = LimitsStack(aws, tmp_path)
    stack.template(MANIFEST)
    aws.out("limits", "apply", str(stack.file))
    with SyncRepository.connect(url=aws.url) as repository:
        repository.create_entity("b", parent_id="a")
        impossible = MANIFEST.replace("entities:", "entities:\n  a: {parent: b}")
        assert stack.create(impossible) in ("ROLLBACK_COMPLETE", "CREATE_FAILED")
        assert "would form a cycle" in stack.reasons()
        stack.delete()
        assert plan(aws, stack)["conflicts"]
        stack.template(MANIFEST)
        assert plan(aws, stack)["changes"] == []
    aws.out("delete", "--yes")
