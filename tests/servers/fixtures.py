"""Servers as pytest fixtures: one of each per test process, started when first asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from .processes import Server, start


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
