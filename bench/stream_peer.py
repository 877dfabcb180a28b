"""Counting usage from a stream beside the existing package's own handler, fed the same records.

python -m bench.stream_peer
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from tests.support.peer import environment
from tests.support.servers.processes import start

from .costs import Cost
from .counting.dynamodb import DynamoCounter
from .scale.markdown import markdown
from .servers import CALLER
from .stream import BATCH, ENTITIES, handle_records, open_table
from .stream_records import records

_TABLE = "stream"
_ARN = "arn:aws:dynamodb:us-east-1:1:table/stream/stream/2024-05-01T10:00:00.000"
_SCRIPT = Path(__file__).parent / "peers" / "aggregator.py"
HEADINGS = ("entities", "handler", "CPU ms per 1,000 records", "writes", "WCU per 1,000 records")


def lambda_records(entities: int) -> list[dict[str, Any]]:
    """Two batches, as Lambda delivers them."""
    return [{**record, "eventSourceARN": _ARN} for record in records(2 * BATCH, entities)]


def ours(url: str, delivered: list[dict[str, Any]], counter: DynamoCounter) -> tuple[float, Cost]:
    """CPU seconds and cost of the second batch."""
    store = open_table(url, _TABLE)
    handle_records(store, delivered[:BATCH])
    before, began = counter.total, time.thread_time()
    handle_records(store, delivered[BATCH:])
    return time.thread_time() - began, counter.total - before


def theirs(url: str, delivered: list[dict[str, Any]], counter: DynamoCounter) -> tuple[float, Cost]:
    """CPU seconds of the existing package for the second batch, in a process and an environment
    of its own, and half of the cost of both batches, new snapshots included."""
    open_table(url, _TABLE)
    settings = {
        "AWS_ENDPOINT_URL": url,
        "AWS_DEFAULT_REGION": "us-east-1",
        "TABLE_NAME": _TABLE,
        "SNAPSHOT_WINDOWS": "hourly,daily,monthly",
        "SNAPSHOT_TTL_DAYS": "90",
    }
    before = counter.total
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([{"Records": delivered[:BATCH]}, {"Records": delivered[BATCH:]}], file)
        file.flush()
        done = subprocess.run(
            [environment.python(), str(_SCRIPT), file.name],
            env={**CALLER, **settings},
            capture_output=True,
            text=True,
            check=True,
        )
    both = counter.total - before
    told = json.loads(done.stderr.splitlines()[-1])
    return told["cpu_s"], Cost(both.calls / 2, both.wcu / 2)


def rows() -> Iterator[list[str]]:
    """One row for each number of entities and each handler."""
    for entities in ENTITIES:
        delivered = lambda_records(entities)
        for name, measure in (("this one", ours), ("zae-limiter 0.17.0", theirs)):
            with start("dynoxide") as server, DynamoCounter(server.url) as counter:
                cpu_s, cost = measure(counter.url, delivered, counter)
            yield [
                f"{entities:,}",
                name,
                f"{1000 * cpu_s:,.0f}",
                f"{cost.calls:,.0f}",
                f"{cost.wcu:,.0f}",
            ]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Show what two handlers take for the same thousand records: two limits, three windows."""
    os.environ.update(CALLER)
    click.echo(markdown(HEADINGS, list(rows())))


if __name__ == "__main__":
    main()
