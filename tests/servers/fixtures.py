"""Servers as pytest fixtures: one of each per test process, started when first asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .processes import Server, start
from .tables import OwnTable, own_table

_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")
_ENVIRONMENT = [
    name for name in os.environ if name.startswith(("AWS_", "ZAEL_")) or name.lower() in _PROXIES
]


@pytest.fixture(scope="session")
def dynamodb() -> Iterator[Server]:
    """The DynamoDB that tests run against.

    `ZAEL_TEST_DYNAMODB_URL` names one that runs already, AWS included, with the credentials
    and region of the environment. `ZAEL_TEST_DYNAMODB_SERVER` names the one to start.
    """
    url = os.environ.get("ZAEL_TEST_DYNAMODB_URL")
    if url:
        yield Server(url, region=os.environ.get("AWS_REGION", "us-east-1"))
        return
    with start(os.environ.get("ZAEL_TEST_DYNAMODB_SERVER", "dynoxide")) as server:
        yield server


@pytest.fixture(scope="session")
def extenddb() -> Iterator[Server]:
    """The server that checks signatures."""
    with start("extenddb") as server:
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


@pytest.fixture
def table(dynamodb: Server, caller: None) -> Iterator[OwnTable]:
    """A limiter's table that no other test has."""
    with own_table(dynamodb) as made:
        yield made
