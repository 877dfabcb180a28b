"""Counting usage from a stream: CPU time for each record, write units for a thousand, growth with
the number of entities, and how far a reader is behind.

python -m bench.stream [--json]
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

import click
from tests.support.servers.processes import start
from tests.support.servers.tables import PATIENT

from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.backends.dynamodb.stream_records import decode_records
from zae_limiter.backends.dynamodb.usage_additions import snapshot_update
from zae_limiter.backends.memory import MemoryStore
from zae_limiter.core.models import UsageSnapshot, UsageSummary
from zae_limiter.core.usage import UsageAddition, summarize
from zae_limiter.flows.scope import Scope
from zae_limiter.flows.stream.aggregate import StreamSettings, aggregate
from zae_limiter.ports.repository_protocol import StreamedUsage, UsageQuery
from zae_limiter.runtime.blocking import BlockingIo, run

from .costs import WCU_DOLLARS
from .scale.markdown import markdown
from .servers import CALLER
from .stream_lag import measure_lag
from .stream_records import records

BATCH = 1000
ENTITIES = (1, 10, 100, 1000)
# The largest batch that Lambda delivers, and how many entities are busy at a time.
LARGE_BATCH = 10_000
GROWTH = (100, 1_000, 10_000, 100_000)
RATES = (100, 1000)


class EncodedUsage:
    """Snapshots that are asked for and never sent: only the time of this process counts, and how
    many there are."""

    def __init__(self) -> None:
        self.additions = 0

    async def add(self, addition: UsageAddition) -> bool:
        self.additions += 1
        return bool(snapshot_update("table", addition).to_json())

    async def read(
        self, namespace_id: str, query: UsageQuery, limit: int, cursor: str | None
    ) -> tuple[list[UsageSnapshot], str | None]:
        return [], None

    async def summary(self, namespace_id: str, query: UsageQuery) -> UsageSummary:
        return summarize([])


def open_table(url: str, name: str) -> DynamoStore:
    """The store in a new table."""
    return run(
        DynamoStore.open(
            name,
            BlockingIo(),
            blocking=True,
            region="us-east-1",
            endpoint_url=url,
            limits=PATIENT,
            create="elsewhere",
        )
    )


def handle_records(store: DynamoStore, batch: list[dict[str, Any]]) -> None:
    """Count the usage of a batch in a table."""
    _handle(Scope(store, store.table.io, ""), store.usage, batch)


def _handle(scope: Scope, usage: StreamedUsage, batch: list[dict[str, Any]]) -> None:
    changes = decode_records(batch, "label").buckets
    result = run(aggregate(scope, usage, changes, StreamSettings(splits=True)))
    assert result.processed == len(batch)
    assert not result.failed


def cpu_us(batch: list[dict[str, Any]], rounds: int = 7) -> float:
    """The median of the CPU time of some rounds, for each record."""
    scope, usage = Scope(MemoryStore(), BlockingIo(), ""), EncodedUsage()
    spent = []
    for _ in range(rounds):
        began = time.process_time()
        _handle(scope, usage, batch)
        spent.append(time.process_time() - began)
    return 1e6 * statistics.median(spent) / len(batch)


def units(store: DynamoStore, batch: list[dict[str, Any]]) -> tuple[int, float]:
    """Calls and write units of a batch whose snapshots exist."""
    meter, half = store.table.client.meter, len(batch) // 2
    handle_records(store, batch[:half])
    store.table.measured = True
    calls, spent = sum(meter.calls.values()), sum(meter.units.values())
    handle_records(store, batch[half:])
    return sum(meter.calls.values()) - calls, sum(meter.units.values()) - spent


Figures = dict[str, float]


def batches() -> Iterator[Figures]:
    """One line for each number of entities in a batch."""
    with start("dynoxide") as server:
        for entities in ENTITIES:
            store = open_table(server.url, f"stream-{entities}")
            calls, wcu = units(store, records(2 * BATCH, entities))
            spent_us = cpu_us(records(BATCH, entities))
            run(store.close())
            yield {
                f"entities in a batch of {BATCH:,} records": entities,
                "µs of CPU per record": spent_us,
                "records/s and core": 1e6 / spent_us,
                "calls": calls,
                "WCU per 1,000 records": wcu,
                "$ per million records": wcu * 1000 * WCU_DOLLARS,
            }


def growth() -> Iterator[Figures]:
    """One line for each number of entities that take turns. A snapshot that exists takes one unit
    for each addition."""
    scope = Scope(MemoryStore(), BlockingIo(), "")
    for entities in GROWTH:
        usage, spent_s, count = EncodedUsage(), 0.0, max(LARGE_BATCH, entities)
        for first in range(0, count, LARGE_BATCH):
            batch = records(LARGE_BATCH, entities, first)
            began = time.process_time()
            _handle(scope, usage, batch)
            spent_s += time.process_time() - began
        yield {
            f"entities, batches of {LARGE_BATCH:,} records": entities,
            "µs of CPU per record": 1e6 * spent_s / count,
            "records/s and core": count / spent_s,
            "WCU per 1,000 records": 1000 * usage.additions / count,
        }


def lags(seconds: float) -> Iterator[Figures]:
    """One line for each rate of records."""
    for rate in RATES:
        seen = measure_lag(rate, seconds)
        yield {
            "records/s": rate,
            "ms until the usage can be read, median": seen.median_ms,
            "longest": seen.longest_ms,
            "µs of CPU per record": seen.cpu_us,
        }


def _shown(lines: Sequence[Figures]) -> str:
    rows = [[_figure(number) for number in line.values()] for line in lines]
    return markdown(tuple(lines[0]), rows)


def _figure(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.3f}"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option("--seconds", default=15.0, show_default=True, help="How long a tape runs.")
def main(as_json: bool, seconds: float) -> None:
    """Show what it takes to count usage: hourly, daily and monthly windows, two limits."""
    os.environ.update(CALLER)
    logging.getLogger("zae_limiter").setLevel(logging.CRITICAL)
    found = {"batches": list(batches()), "growth": list(growth()), "lag": list(lags(seconds))}
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo("\n\n".join(_shown(lines) for lines in found.values()))


if __name__ == "__main__":
    main()
