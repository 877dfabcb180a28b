"""`zae-limiter aggregate` as processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.cli_schema import assert_as_published
from tests.support.servers.tables import OwnTable
from tests.support.table_crowd import ROOT

PATIENCE_S = 120


class Aggregator:
    """One process, and the lines that it prints."""

    def __init__(self, table: OwnTable, folder: Path, *options: str) -> None:
        name = uuid.uuid4().hex
        self._out, self._errors = folder / f"{name}.out", folder / f"{name}.errors"
        with self._out.open("wb") as out, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "zae_limiter.cli", "aggregate"),
                    *("--json", "--url", table.url, *options),
                ],
                cwd=ROOT,
                stdout=out,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            )

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait for the end and return the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end and return the exit code."""
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()

    def lines(self) -> list[dict[str, Any]]:
        """The lines printed so far."""
        whole = [line for line in self._out.read_text().splitlines(True) if line.endswith("\n")]
        printed = [json.loads(line) for line in whole]
        for line in printed:
            assert_as_published(("aggregate",), line)
        return printed

    def errors(self) -> str:
        """What was said on standard error so far."""
        return self._errors.read_text()

    def has_started(self) -> bool:
        return bool(self.lines())

    def has_counted(self, changes: int = 1) -> bool:
        assert self.process.poll() is None, self.errors()
        return any(line["processed"] >= changes for line in self.lines())

    def has_left_a_shard(self) -> bool:
        return any(line["shards_of_others"] for line in self.lines())


def checkpoints(table: OwnTable) -> list[dict[str, Any]]:
    """The checkpoints of all readers."""
    return [item for item in table.items() if item["PK"]["S"] == "_/STREAM#"]


def wait_until(is_true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.05)
