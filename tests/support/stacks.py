"""Stacks in a local AWS: the command line on them, and what the services say themselves."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from click.testing import CliRunner, Result

from tests.support.cli_schema import assert_as_published
from tests.support.servers.processes import Server
from tests.support.servers.tables import OwnTable
from zae_limiter.backends.dynamodb.url import dynamodb_url
from zae_limiter.backends.dynamodb.wire.client import DynamoClient
from zae_limiter.cli import cli

_FORGOTTEN = ("AWS_", "ZAEL_", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")


def forget_environment(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let nothing of the machine's own settings be seen."""
    for name in [name for name in os.environ if name.startswith(_FORGOTTEN)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@dataclass(frozen=True)
class LocalAws:
    """A server that speaks for all services, and the name of one stack."""

    server: Server
    stack: str

    @property
    def url(self) -> str:
        """The store in the stack's table."""
        return dynamodb_url(self.stack, self.server.region, self.server.url)

    @property
    def place(self) -> list[str]:
        """The options of the command line that name the stack."""
        where = ["--region", self.server.region, "--endpoint-url", self.server.url]
        return ["--name", self.stack, *where]

    def table(self, client: DynamoClient) -> OwnTable:
        return OwnTable(self.stack, self.server, client)

    def client(self, service: str) -> Any:
        return boto3.client(service, region_name=self.server.region, endpoint_url=self.server.url)

    def run(self, *args: str, typed: str | None = None) -> Result:
        """Run a command on the stack."""
        result = CliRunner().invoke(cli, [*args, *self.place], input=typed)
        expected = result.exception is None or isinstance(result.exception, SystemExit)
        assert expected, f"{args} ended with {result.exception!r}"
        return result

    def out(self, *args: str) -> str:
        """Return the output of a command that succeeds."""
        result = self.run(*args)
        assert result.exit_code == 0, result.output
        return result.stdout

    def out_anywhere(self, *args: str, placed: bool = True) -> str:
        """Return the output of a command about no stack in particular."""
        result = CliRunner().invoke(cli, [*args, *(self.place[2:] if placed else ())])
        assert result.exit_code == 0, result.output
        return result.stdout

    def lines(self, *args: str) -> list[dict[str, Any]]:
        """Return the JSON lines of a command that succeeds."""
        printed = [json.loads(line) for line in self.out(*args, "--json").splitlines()]
        for line in printed:
            assert_as_published(args, line)
        return printed

    def result(self, *args: str) -> dict[str, Any]:
        """Return the result in the last JSON line of a command that succeeds."""
        found: dict[str, Any] = self.lines(*args)[-1]["result"]
        return found

    def error(self, *args: str) -> str:
        """Return the message of a command that fails."""
        result = self.run(*args)
        assert result.exit_code == 1, result.output
        return result.stderr

    def remains(self) -> list[str]:
        """Return everything that still has the stack's name in its own."""
        named: list[str] = []
        named += self.client("dynamodb").list_tables()["TableNames"]
        named += [f["FunctionName"] for f in self.client("lambda").list_functions()["Functions"]]
        named += self.client("sqs").list_queues().get("QueueUrls", [])
        named += [b["Name"] for b in self.client("s3").list_buckets()["Buckets"]]
        named += [r["RoleName"] for r in self.client("iam").list_roles()["Roles"]]
        named += [p["PolicyName"] for p in self.client("iam").list_policies()["Policies"]]
        named += [g["logGroupName"] for g in self.client("logs").describe_log_groups()["logGroups"]]
        alarms = self.client("cloudwatch").describe_alarms()["MetricAlarms"]
        named += [alarm["AlarmName"] for alarm in alarms]
        stacks = self.client("cloudformation").describe_stacks()["Stacks"]
        named += [each["StackName"] for each in stacks if each["StackStatus"] != "DELETE_COMPLETE"]
        return [name for name in named if self.stack in name]
