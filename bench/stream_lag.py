"""How far a reader of the stream is behind while clients write steadily, on a real server.

Server, client and reader share the machine, so the figures are those of the machine: how many
writes a second it bears is told beside.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tests.support.servers.processes import start
from tests.support.servers.tables import OwnTable, own_table
from tests.support.table_crowd import ROOT

from zae_limiter import Limit, RateLimiter, Repository

from .servers import CALLER

# The one whose stream does not slow it down.
SERVER = "dynamodb-local"
ENTITIES = 50
_TASKS = 32
_LIMITS = [Limit.per_minute("rpm", 10**9), Limit.per_minute("tpm", 10**9)]
_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Lag:
    """What was seen of a reader: the age of records when they were counted, how long after the last
    write all was counted, and the CPU time of the reader for each record."""

    writes_per_s: float
    median_ms: float
    longest_ms: float
    last_s: float
    cpu_us: float


def measure_lag(rate: int, seconds: float) -> Lag:
    """Let a client write at a rate, or as often as it can, and a process count."""
    with start(SERVER) as server, own_table(server) as table, tempfile.TemporaryDirectory() as made:
        reader = _Reader(table, Path(made))
        try:
            return asyncio.run(_measure(table, reader, rate, seconds))
        finally:
            reader.end()


async def _measure(table: OwnTable, reader: _Reader, rate: int, seconds: float) -> Lag:
    repository = await Repository.open("bench", url=table.url)
    limiter = RateLimiter(repository)
    await limiter.set_system_defaults(_LIMITS)
    await asyncio.to_thread(reader.wait_for, 0)
    idle_s = reader.cpu_s()
    began = time.monotonic()
    numbers = count()
    done = 0

    async def work() -> None:
        nonlocal done
        while (due := began + next(numbers) / rate) < began + seconds:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if time.monotonic() > began + seconds:
                return
            async with limiter.acquire(f"key-{done % ENTITIES}", "gpt-4", {"rpm": 1, "tpm": 500}):
                done += 1

    await asyncio.gather(*(work() for _ in range(_TASKS)))
    written_s = time.monotonic() - began
    await asyncio.to_thread(reader.wait_for, done)
    last_s = time.monotonic() - began - written_s
    await repository.close()
    lags = reader.lags_ms()
    cpu_us = 1e6 * (reader.cpu_s() - idle_s) / max(1, reader.processed())
    return Lag(done / written_s, statistics.median(lags), max(lags), last_s, cpu_us)


class _Reader:
    """`zae-limiter aggregate` in a process of its own."""

    def __init__(self, table: OwnTable, folder: Path) -> None:
        self._out = folder / "lines"
        with self._out.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "zae_limiter.cli", "aggregate", "--json"],
                stdout=out,
                cwd=ROOT,
                env={**os.environ, **CALLER, "PYTHONPATH": "src", "ZAEL_URL": table.url},
            )

    def _lines(self) -> list[dict[str, int]]:
        text = self._out.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines(True) if line.endswith("\n")]

    def processed(self) -> int:
        lines = self._lines()
        return lines[-1]["processed"] if lines else -1

    def wait_for(self, changes: int) -> None:
        """Wait until so many changes are counted; for a reader that has started, if none."""
        deadline = time.monotonic() + _PATIENCE_S
        while self.processed() < changes and time.monotonic() < deadline:
            time.sleep(0.05)

    def lags_ms(self) -> list[int]:
        """One for each second in which something was counted."""
        return [line["lag_ms"] for line in self._lines() if line["processed"]] or [0]

    def cpu_s(self) -> float:
        """CPU time so far, as Linux tells it."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()
