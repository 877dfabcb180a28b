"""How long after a record can be had from the stream its usage can be read.

The reader is `zae-limiter aggregate` in a process of its own, its table is one of a real server,
and its stream a tape that runs at a steady rate (`bench.stream_tape`).
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.support.servers.processes import start
from tests.support.servers.tables import OwnTable, own_table
from tests.support.table_crowd import ROOT

from zae_limiter.backends.dynamodb.schema import key, pk_entity, sk_usage
from zae_limiter.backends.dynamodb.url import dynamodb_url
from zae_limiter.core.windows import window_key

from .servers import CALLER
from .stream_records import NAMESPACE, RESOURCE, entity_name
from .stream_tape import Tape

SERVER = "dynamodb-local"
ENTITIES = 50
# A Java server is slow until it has compiled itself.
_WARM_UP_S = 10.0
_PATIENCE_S = 60.0
_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Lag:
    """How long after a record its usage could be read, and the CPU time of the reader for each."""

    records: int
    median_ms: float
    longest_ms: float
    cpu_us: float


def measure_lag(rate: int, seconds: float) -> Lag:
    """Let a process count the records of a tape that runs at a rate."""
    with start(SERVER) as server, own_table(server) as table:
        return asyncio.run(_measure(table, rate, seconds))


async def _measure(table: OwnTable, rate: int, seconds: float) -> Lag:
    tape = Tape(table.name, ENTITIES)
    async with tape.serving():
        with _reader(table, tape) as pid:
            tape.begin(rate, _WARM_UP_S)
            await _watch(table, tape)
            idle_s = _cpu_s(pid)
            tape.begin(rate, seconds)
            lags_s = await _watch(table, tape)
            spent_s = _cpu_s(pid) - idle_s
    records = round(rate * seconds)
    return Lag(
        records, 1000 * statistics.median(lags_s), 1000 * max(lags_s), 1e6 * spent_s / records
    )


async def _watch(table: OwnTable, tape: Tape) -> list[float]:
    """Wait until all records of the first entity are counted, and return how long each was not."""
    waiting = list(tape.turns())
    until_s = tape.time_of(waiting[-1]) + _PATIENCE_S
    lags_s: list[float] = []
    while waiting:
        if time.time() > until_s:
            raise TimeoutError(f"{len(waiting)} records of an entity were not counted")
        await asyncio.sleep(_LOOK_S)
        acquires = await asyncio.to_thread(_counted, table)
        now_s = time.time()
        while waiting and waiting[0] < acquires * tape.entities:
            lags_s.append(now_s - tape.time_of(waiting.pop(0)))
    return lags_s


def _counted(table: OwnTable) -> int:
    """The acquires of the first entity, each of which is a record."""
    month = window_key("monthly", datetime.now(UTC))
    place = key(pk_entity(NAMESPACE, entity_name(0)), sk_usage(RESOURCE, month))
    answer = table.call("GetItem", Key=place, ConsistentRead=True)
    return int(answer["Item"]["total_events"]["N"]) if "Item" in answer else 0


@contextmanager
def _reader(table: OwnTable, tape: Tape) -> Iterator[int]:
    """Run `zae-limiter aggregate` for the length of a block. Gives the id of the process."""
    places = {
        "ZAEL_URL": dynamodb_url(table.name, table.server.region),
        "AWS_ENDPOINT_URL_DYNAMODB": table.server.url,
        "AWS_ENDPOINT_URL_DYNAMODB_STREAMS": tape.url,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "zae_limiter.cli", "aggregate", "--json"],
        stdout=subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, **CALLER, "PYTHONPATH": "src", **places},
    )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _cpu_s(pid: int) -> float:
    """CPU time of a process so far, as Linux tells it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
