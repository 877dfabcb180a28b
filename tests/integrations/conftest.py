"""A gateway of each kind, behind its server."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import get_args

import pytest

from tests.integrations.gateways import Gateway, Kind, gateway_behind

_keys = count()


@pytest.fixture(scope="module", params=get_args(Kind))
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("gateway")
    with gateway_behind(request.param, folder, f"sqlite:///{folder}/limits.db") as gateway:
        yield gateway


@pytest.fixture
def gateway(running: Gateway) -> Gateway:
    """The gateway, with a key that no other test has."""
    running.key = f"key-{next(_keys)}"
    return running
