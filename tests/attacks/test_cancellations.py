"""However often calls are cancelled, and wherever, refunds are exact."""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random

import pytest

from tests.support.servers.chaos import ChaosProxy, Last, Pass
from tests.support.servers.tables import OwnTable
from zae_limiter.backends.dynamodb.url import dynamodb_url

from .cancellations import WAYS
from .effort import effort, note_tried

ROUNDS = effort(40, 1000)
# Interpreters of other versions, each with the project installed, for `make attack`.
PYTHONS = [sys.executable, *filter(None, os.environ.get("ZAEL_PYTHONS", "").split(os.pathsep))]


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("way", WAYS)
def test_calls_that_are_cancelled_anywhere_give_back_exactly_what_they_took(
    python: str, way: str, table: OwnTable
) -> None:
    rng = Random(1)
    with ChaosProxy(table.server.url) as proxy:
        proxy.use_for(lambda request: Last() if rng.random() < 0.5 else Pass())
        url = dynamodb_url(table.name, table.server.region, proxy.url)
        program = [python, "-m", "tests.attacks.cancellations", url, way, str(ROUNDS), "7"]
        ran = subprocess.run(program, capture_output=True, text=True, check=False, timeout=900)
    note_tried("cancelled calls", ROUNDS)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "0\n", f"{ran.stdout} tokens lost or won\n{ran.stderr}"
