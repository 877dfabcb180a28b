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
from collections.abc import Sequence
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
_PATIENCE_S = 60.0
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Lag:
    """What was seen of a reader: the age of the newest write that it had counted, whenever it told
    its progress; how long after the last write all was counted; its CPU time for each record."""

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
    # Each acquire is a record of its own.
    repository = await Repository.open("bench", url=table.url, coalesce=False)
    limiter = RateLimiter(repository)
    await limiter.set_system_defaults(_LIMITS)
    await asyncio.to_thread(reader.watch, [], 0)
    idle_s = reader.cpu_s()
    began = time.monotonic()
    numbers = count()
    written_s: list[float] = []

    async def work() -> None:
        for number in numbers:
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            if time.monotonic() > began + seconds:
                return
            key = f"key-{number % ENTITIES}"
            async with limiter.acquire(key, "gpt-4", {"rpm": 1, "tpm": 500}):
                written_s.append(time.monotonic())

    watching = asyncio.create_task(asyncio.to_thread(reader.watch, written_s, seconds))
    await asyncio.gather(*(work() for _ in range(_TASKS)))
    lags_s = await watching
    await repository.close()
    return Lag(
        len(written_s) / (written_s[-1] - began),
        1000 * statistics.median(lags_s),
        1000 * max(lags_s),
        time.monotonic() - written_s[-1],
        1e6 * (reader.cpu_s() - idle_s) / len(written_s),
    )


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

    def watch(self, written_s: Sequence[float], seconds: float) -> list[float]:
        """Wait so long, and until all writes are counted. Return the lag at each progress."""
        lags_s: list[float] = []
        counted, until = -1, time.monotonic() + seconds
        while time.monotonic() < until or counted < len(written_s):
            if time.monotonic() > until + _PATIENCE_S:
                raise TimeoutError(f"{counted} of {len(written_s)} writes were counted")
            time.sleep(_LOOK_S)
            if self.processed() > counted:
                counted = self.processed()
                if 0 < counted <= len(written_s):
                    lags_s.append(time.monotonic() - written_s[counted - 1])
        return lags_s

    def cpu_s(self) -> float:
        """CPU time so far, as Linux tells it."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()
