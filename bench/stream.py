"""Counting usage from a stream: CPU time for each record, and write units for a thousand.

python -m bench.stream
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from typing import Any

import click
from tests.support.servers.processes import start
from tests.support.servers.tables import PATIENT

from zae_limiter import Limit
from zae_limiter.backends.dynamodb.bucket_codec import bucket_key, encode_bucket_item
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.backends.dynamodb.stream_records import decode_records
from zae_limiter.backends.dynamodb.usage_additions import snapshot_update
from zae_limiter.backends.memory import MemoryStore
from zae_limiter.core.bucket import Bucket, BucketAddress, full_bucket, take_tokens
from zae_limiter.core.limit import LimitSet
from zae_limiter.core.models import UsageSnapshot
from zae_limiter.core.usage import UsageAddition
from zae_limiter.core.validation import WCU
from zae_limiter.flows.scope import Scope
from zae_limiter.flows.stream.aggregate import StreamSettings, aggregate
from zae_limiter.ports.repository_protocol import StreamedUsage, UsageQuery
from zae_limiter.runtime.blocking import BlockingIo, run

from .costs import WCU_DOLLARS
from .scale.markdown import markdown
from .servers import CALLER

BATCH = 1000
ENTITIES = (1, 10, 100, 1000)
_AT_S = 1_714_564_801
_LIMITS = LimitSet.of([Limit.per_minute("rpm", 6000), Limit.per_minute("tpm", 600_000)])
_TAKES_MILLI = {"rpm": 1000, "tpm": 500_000, WCU: 1250}


def records(count: int, entities: int) -> list[dict[str, Any]]:
    """Acquires of one token and 500, in turn by each entity, as Lambda delivers them."""
    images: dict[int, Bucket] = {}
    made = []
    for number in range(count):
        entity = number % entities
        address = BucketAddress("ns", f"key-{entity}", "gpt-4")
        before = images.get(entity) or full_bucket(_LIMITS, _AT_S * 1000, metered=True)
        images[entity] = after = take_tokens(before, _TAKES_MILLI, 1)
        change = {
            "ApproximateCreationDateTime": float(_AT_S),
            "Keys": bucket_key(address),
            "SequenceNumber": f"{number + 1:021}",
            "OldImage": encode_bucket_item(address, before),
            "NewImage": encode_bucket_item(address, after),
        }
        made.append({"eventName": "MODIFY", "dynamodb": change})
    return made


class EncodedUsage:
    """Snapshots that are asked for and never sent: only the time of this process counts."""

    async def add(self, addition: UsageAddition) -> bool:
        return bool(snapshot_update("table", addition).to_json())

    async def read(
        self, namespace_id: str, query: UsageQuery, limit: int, cursor: str | None
    ) -> tuple[list[UsageSnapshot], str | None]:
        return [], None


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
    """The least CPU time of some rounds, for each record."""
    scope, usage = Scope(MemoryStore(), BlockingIo(), ""), EncodedUsage()
    spent = []
    for _ in range(rounds):
        began = time.process_time()
        _handle(scope, usage, batch)
        spent.append(time.process_time() - began)
    return 1e6 * min(spent) / len(batch)


def units(store: DynamoStore, batch: list[dict[str, Any]]) -> tuple[int, float]:
    """Calls and write units of a batch whose snapshots exist."""
    meter, half = store.table.client.meter, len(batch) // 2
    handle_records(store, batch[:half])
    store.table.measured = True
    calls, spent = sum(meter.calls.values()), sum(meter.units.values())
    handle_records(store, batch[half:])
    return sum(meter.calls.values()) - calls, sum(meter.units.values()) - spent


def rows() -> Iterator[list[str]]:
    """One row for each number of entities."""
    with start("dynoxide") as server:
        for entities in ENTITIES:
            store = open_table(server.url, f"stream-{entities}")
            calls, wcu = units(store, records(2 * BATCH, entities))
            spent_us = cpu_us(records(BATCH, entities))
            run(store.close())
            yield [
                f"{entities:,}",
                f"{spent_us:.0f}",
                f"{1e6 / spent_us:,.0f}",
                f"{calls:,}",
                f"{wcu:,.0f}",
                f"{wcu * 1000 * WCU_DOLLARS:.3f}",
            ]


HEADINGS = (
    "entities in a batch of 1,000 records",
    "µs of CPU per record",
    "records/s and core",
    "calls",
    "WCU per 1,000 records",
    "$ per million records",
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Show what it takes to count usage: hourly, daily and monthly windows, two limits."""
    os.environ.update(CALLER)
    logging.getLogger("zae_limiter").setLevel(logging.CRITICAL)
    click.echo(markdown(HEADINGS, list(rows())))


if __name__ == "__main__":
    main()
