"""Usage is exact while the shards of a real stream end and go on in children."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.support.aggregators import Aggregator, checkpoints, wait_until
from tests.support.rolling_stream import end_shard, generations
from tests.support.servers.processes import start
from tests.support.servers.tables import OwnTable, own_table
from tests.support.stream_client import LIMITS, NAMESPACE, RESOURCE
from zae_limiter import SyncRepository
from zae_limiter.core.windows import WINDOW_TYPES

from .test_aggregate_command import release_leases
from .test_stream import snapshots_of, totals, use

PHASES = 2
STEPS = 60


def use_in_phases(table: OwnTable, folder: Path, readers: list[Aggregator]) -> Counter[str]:
    """Let clients work in each generation of shards. One reader is killed in each, and another one
    takes its place. Returns the charges in the clients' books."""
    charged: Counter[str] = Counter()
    for phase in range(PHASES):
        books = folder / f"phase-{phase}"
        books.mkdir()
        charged += use(table, books, STEPS).charged
        victim = readers.pop(0)
        wait_until(victim.has_started, "the reader starts")
        assert victim.end(signal.SIGKILL) == -signal.SIGKILL, victim.errors()
        release_leases(table)
        readers.append(Aggregator(table, folder))
        end_shard(table, folder / "server")
    return charged


@pytest.mark.slow
def test_usage_is_exact_while_shards_of_a_stream_go_on_in_children(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    with (
        start("dynamodb-local-on-disk", tmp_path / "server") as server,
        own_table(server) as table,
        SyncRepository.open(NAMESPACE, url=table.url) as repository,
    ):
        repository.set_resource_defaults(RESOURCE, LIMITS)
        repository.create_entity("org")
        for child in ("child-1", "child-2"):
            repository.create_entity(child, parent_id="org", cascade=True)
        readers = [Aggregator(table, tmp_path) for _ in range(2)]
        try:
            charged = use_in_phases(table, tmp_path, readers)
            assert generations(table) == PHASES + 1
            charged += use(table, tmp_path, STEPS).charged
            wait_until(
                lambda: +totals(snapshots_of(repository, "monthly")) == +charged,
                "the readers come to the newest shard",
            )
            assert [reader.end() for reader in readers] == [0, 0]
        finally:
            for reader in readers:
                reader.process.kill()
        for window in WINDOW_TYPES:
            assert +totals(snapshots_of(repository, window)) == +charged, window
        for item in checkpoints(table):
            # Everything is delivered again, from the oldest shard on.
            table.call("DeleteItem", Key={"PK": item["PK"], "SK": item["SK"]})
        again = Aggregator(table, tmp_path, "--once")
        assert again.wait() == 0, again.errors()
        assert again.lines()[-1]["snapshots_updated"] == 0
        assert len(checkpoints(table)) == PHASES + 1
        assert +totals(snapshots_of(repository, "monthly")) == +charged
