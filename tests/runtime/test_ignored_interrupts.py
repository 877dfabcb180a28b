"""The tests pass, too, when whoever starts them ignores interrupts, as many CI systems do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import ignoring_interrupts

ROOT = Path(__file__).parents[2]
INTERRUPTING = [
    "tests/bench/test_bench.py",
    "tests/bench/test_interrupts.py",
    "tests/cli/test_demo.py",
    "tests/dynamodb/test_aggregate_command.py",
    "tests/flows/test_coalescing_processes.py",
    "tests/flows/test_refunds.py",
    "tests/infra/test_deployment.py",
]


@pytest.mark.slow
@pytest.mark.parametrize("path", INTERRUPTING)
def test_tests_that_interrupt_pass_when_their_parent_ignores_interrupts(path: str) -> None:
    chosen = [path, "-k", "interrupt or ctrl_c or control_c or hangs"]
    done = subprocess.run(
        [*ignoring_interrupts(), sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *chosen],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
