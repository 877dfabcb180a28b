"""Readers share out the shards of a real stream while clients write to the table."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.aggregators import Aggregator, checkpoints, wait_until
from tests.support.servers.processes import Server
from tests.support.servers.tables import OwnTable, own_table
from tests.support.stream_client import LIMITS, NAMESPACE, RESOURCE
from zae_limiter import SyncRateLimiter, SyncRepository

from .test_aggregate_command import counted

# So many that each of the server's four stream shards has some.
ENTITIES = 24


@pytest.fixture
def sharded(extenddb: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnTable]:
    """A table on the server whose streams have several shards."""
    assert extenddb.access_key is not None
    assert extenddb.secret_key is not None
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", extenddb.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", extenddb.secret_key)
    with own_table(extenddb) as table:
        yield table


class SteadyUse(threading.Thread):
    """A client that charges one entity after the other until it is told to stop."""

    def __init__(self, repository: SyncRepository) -> None:
        super().__init__()
        self.charged = 0
        self._limiter = SyncRateLimiter(repository)
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.02):
            with self._limiter.acquire(f"key-{self.charged % ENTITIES}", RESOURCE, {"rpm": 1}):
                self.charged += 1

    def end(self) -> int:
        """Stop, and return how many acquires there were."""
        self._ended.set()
        self.join()
        return self.charged


def parts(table: OwnTable) -> Counter[int]:
    """How many shards each process has the lease of, by process id."""
    now_ms = time.time() * 1000
    return Counter(
        int(item["owner"]["S"].split("-")[-2])
        for item in checkpoints(table)
        if int(item["lease_ends_ms"]["N"]) > now_ms
    )


def wait_for_shares(table: OwnTable, expected: list[int]) -> None:
    wait_until(
        lambda: sorted(parts(table).values(), reverse=True) == expected,
        f"the shards are shared out as {expected}",
    )


@pytest.mark.slow
def test_readers_that_come_and_are_killed_share_the_shards_and_count_exactly(
    sharded: OwnTable, tmp_path: Path
) -> None:
    readers: list[Aggregator] = []
    with SyncRepository.open(NAMESPACE, url=sharded.url) as repository:
        repository.set_resource_defaults(RESOURCE, LIMITS)
        use = SteadyUse(repository)
        use.start()
        try:
            for expected in ([4], [2, 2], [2, 1, 1]):
                readers.append(Aggregator(sharded, tmp_path))
                wait_for_shares(sharded, expected)
            ((victim, _),) = parts(sharded).most_common(1)
            killed = next(each for each in readers if each.process.pid == victim)
            killed.end(signal.SIGKILL)
            readers.remove(killed)
            wait_until(
                lambda: parts(sharded) == {each.process.pid: 2 for each in readers},
                "the shards of the killed reader are taken over",
            )
            charged = use.end()
            assert [reader.end() for reader in readers] == [0, 0]
        finally:
            use.end()
            for reader in readers:
                reader.process.kill()
        assert Aggregator(sharded, tmp_path, "--once").wait() == 0
        assert counted(repository) == charged > 100
