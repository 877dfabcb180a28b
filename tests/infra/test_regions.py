"""A stack is deployed to the region, and by the credentials, that clients of it would use."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.stacks import forget_environment
from zae_limiter import ValidationError
from zae_limiter.backends.dynamodb.wire.credentials import Access
from zae_limiter.cli import cli
from zae_limiter.infra.aws import Aws

COMMANDS = ["status", "deploy", "upgrade", "delete", "list"]


@pytest.fixture(autouse=True)
def without_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    forget_environment(monkeypatch, tmp_path)


def errors(command: str, *options: str) -> str:
    named = () if command == "list" else ("--name", "my-app")
    result = CliRunner().invoke(cli, [command, *named, *options])
    assert result.exit_code == 1, result.exception
    return result.stderr


@pytest.mark.parametrize(
    ("variables", "profile", "region"),
    [
        ({"AWS_REGION": "eu-west-1"}, None, "eu-west-1"),
        ({"AWS_DEFAULT_REGION": "eu-west-2"}, None, "eu-west-2"),
        ({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-2"}, None, "eu-west-1"),
        ({}, "eu-west-3", "eu-west-3"),
    ],
)
def test_deployers_and_clients_agree_about_the_region(
    variables: dict[str, str],
    profile: str | None,
    region: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    if profile is not None:
        (tmp_path / "config").write_text(f"[default]\nregion = {profile}\n", encoding="utf-8")
    aws = Aws()
    assert aws["cloudformation"].meta.region_name == Access(None, None).obtain().region == region
    assert Aws("us-east-1")["dynamodb"].meta.region_name == "us-east-1"
    aws.close()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_a_region_says_how_to_name_one(command: str) -> None:
    assert "set AWS_REGION" in errors(command)
    with pytest.raises(ValidationError):
        _ = Aws()["s3"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_credentials_says_how_to_set_them(command: str) -> None:
    told = errors(command, "--region", "us-east-1")
    assert "No AWS credentials found: set AWS_ACCESS_KEY_ID" in told
    assert "'*'" not in told
