"""Servers as pytest fixtures, started by each test process when it first needs them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from tests.support.servers.processes import Server, start
from tests.support.servers.tables import OwnTable, own_table, table_client
from zae_limiter.backends.dynamodb.wire.client import DynamoClient

_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")
_ENVIRONMENT = [
    name for name in os.environ if name.startswith(("AWS_", "ZAEL_")) or name.lower() in _PROXIES
]


_DEFAULT = "dynoxide"


def _chosen() -> str:
    return os.environ.get("ZAEL_TEST_DYNAMODB_SERVER", _DEFAULT)


def _lifetime(fixture_name: str, config: pytest.Config) -> Literal["module", "session"]:
    """How long a DynamoDB server is kept.

    dynoxide starts in 25 ms, and each of its writes takes longer the more records its streams
    hold, those of deleted tables included: after a few big tables, ten times as long. So each
    module of tests has a new one. Other servers take seconds to start.
    """
    is_default = "ZAEL_TEST_DYNAMODB_URL" not in os.environ and _chosen() == _DEFAULT
    return "module" if is_default else "session"


@pytest.fixture(scope=_lifetime)
def dynamodb() -> Iterator[Server]:
    """The DynamoDB that tests run against.

    `ZAEL_TEST_DYNAMODB_URL` names one that runs already, AWS included, with the credentials
    and region of the environment. `ZAEL_TEST_DYNAMODB_SERVER` names the one to start.
    """
    url = os.environ.get("ZAEL_TEST_DYNAMODB_URL")
    if url:
        yield Server(url, region=os.environ.get("AWS_REGION", "us-east-1"))
        return
    with start(_chosen()) as server:
        yield server


@pytest.fixture(scope="session")
def extenddb() -> Iterator[Server]:
    """The server that checks signatures."""
    with start("extenddb") as server:
        yield server


@pytest.fixture(scope="session")
def ministack() -> Iterator[Server]:
    """A whole AWS: CloudFormation, Lambda, streams, S3, SQS, IAM."""
    with start("ministack") as server:
        yield server


@pytest.fixture
def caller(dynamodb: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the machine's own settings is seen, but for a server that needs them."""
    if dynamodb.access_key is None or dynamodb.secret_key is None:
        return
    for name in _ENVIRONMENT:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", dynamodb.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", dynamodb.secret_key)


@pytest.fixture(scope=_lifetime)
def maker(dynamodb: Server) -> Iterator[DynamoClient]:
    """The client that makes the tables of all tests: to find credentials takes it 10 ms, once."""
    with table_client(dynamodb) as made:
        yield made


@pytest.fixture
def table(dynamodb: Server, caller: None, maker: DynamoClient) -> Iterator[OwnTable]:
    """A limiter's table that no other test has."""
    with own_table(dynamodb, maker) as made:
        yield made
