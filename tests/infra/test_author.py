"""A change of a table on AWS names the caller that AWS knows."""

from __future__ import annotations

import getpass
import socket
from contextlib import closing

import pytest

from tests.support.servers.processes import Server
from tests.support.stacks import LocalAws
from zae_limiter.cli.author import find_author


@pytest.fixture
def region_of_environment(aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable that AWS's own machines set; boto3 reads another one."""
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_REGION", aws.server.region)


@pytest.mark.parametrize("url", ["dynamodb://us-east-1/app", "dynamodb:///app"])
def test_a_change_on_aws_names_the_arn_of_the_caller(
    region_of_environment: None, ministack: Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", ministack.url)
    assert find_author(url).startswith("arn:aws:")


def test_a_change_on_a_server_of_ones_own_names_the_user_without_asking_aws(
    region_of_environment: None, ministack: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", ministack.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", ministack.url)
    assert find_author("dynamodb://us-east-1/app") == getpass.getuser()
    at_server = f"dynamodb://us-east-1/app?endpoint_url={ministack.url}"
    assert find_author(at_server) == getpass.getuser()


@pytest.mark.slow
def test_a_change_does_not_wait_for_a_caller_that_aws_does_not_tell(
    region_of_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        port = silent.getsockname()[1]
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{port}")
        assert find_author("dynamodb://us-east-1/app") == getpass.getuser()
