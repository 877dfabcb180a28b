"""A gateway of each kind, behind its server."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import get_args

import pytest

from tests.integrations.gateways import Gateway, Kind, gateway_behind

_keys = count()


# A forked gateway differs in its processes alone, which the tests under load look at.
_KINDS = [kind for kind in get_args(Kind) if kind != "forked"]


@pytest.fixture(scope="module", params=_KINDS)
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
