"""`zae-limiter aggregate` on the real stream of a table, in processes that come and go."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.aggregators import Aggregator, checkpoints, wait_until
from tests.support.books import Account
from tests.support.servers.processes import start
from tests.support.servers.tables import OwnTable, own_table
from tests.support.stream_client import LIMITS, NAMESPACE, RESOURCE
from tests.support.stream_reading import read_stream
from zae_limiter import SyncRateLimiter, SyncRepository
from zae_limiter.cli import cli
from zae_limiter.core.windows import WINDOW_TYPES

from .test_stream import snapshots_of, totals, use

pytestmark = pytest.mark.slow


@pytest.fixture
def repository(table: OwnTable) -> Iterator[SyncRepository]:
    with SyncRepository.open(NAMESPACE, url=table.url) as opened:
        opened.set_resource_defaults(RESOURCE, LIMITS)
        opened.create_entity("org")
        for child in ("child-1", "child-2"):
            opened.create_entity(child, parent_id="org", cascade=True)
        yield opened


def charge(repository: SyncRepository, times: int) -> None:
    limiter = SyncRateLimiter(repository)
    for _ in range(times):
        with limiter.acquire("alone", RESOURCE, {"rpm": 1}):
            pass


def counted(repository: SyncRepository) -> int:
    return sum(each.total_events for each in snapshots_of(repository, "daily"))


# `make soak` runs many more on a server whose stream does not slow it down.
MANY_STEPS = int(os.environ.get("ZAEL_STREAM_STEPS", "2000"))


class Use(threading.Thread):
    """Four client processes that make so many steps and go on until `let_end`, and their books."""

    def __init__(self, table: OwnTable, folder: Path, steps: int) -> None:
        super().__init__()
        self._until = folder / "until"
        self._task = (table, folder, steps, self._until)
        self.account: Account | None = None

    def run(self) -> None:
        self.account = use(*self._task)

    def let_end(self) -> None:
        self._until.touch()


def check_killed_readers(
    table: OwnTable, repository: SyncRepository, folder: Path, steps: int, kills: int
) -> None:
    """Two readers at a time count while clients work; one is killed again and again, that many
    times at least however fast the clients are."""
    chance = random.Random(steps)
    clients = Use(table, folder, steps)
    readers = [Aggregator(table, folder), Aggregator(table, folder)]
    clients.start()
    killed = 0
    try:
        while clients.is_alive():
            victim = chance.randrange(2)
            wait_until(readers[victim].has_started, "the reader starts")
            time.sleep(chance.uniform(0, 4))
            assert readers[victim].end(signal.SIGKILL) == -signal.SIGKILL, readers[victim].errors()
            release_leases(table)
            readers[victim] = Aggregator(table, folder)
            killed += 1
            if killed == kills:
                clients.let_end()
        assert killed >= kills
        # Until it prints, a process is still importing, and SIGTERM ends it as any other.
        wait_until(lambda: all(reader.has_started() for reader in readers), "the readers start")
        assert [reader.end() for reader in readers] == [0, 0]
    finally:
        for reader in readers:
            reader.process.kill()
        clients.let_end()
        clients.join()
    release_leases(table)
    last = Aggregator(table, folder, "--once")
    assert last.wait() == 0, last.errors()
    account = clients.account
    assert account is not None
    for window in WINDOW_TYPES:
        assert +totals(snapshots_of(repository, window)) == +account.charged, window


def release_leases(table: OwnTable) -> None:
    """Let the leases of killed readers be over, as half a minute would."""
    set_leases(table, 0)


def set_leases(table: OwnTable, end_ms: int) -> None:
    for item in checkpoints(table):
        table.call(
            "UpdateItem",
            Key={"PK": item["PK"], "SK": item["SK"]},
            UpdateExpression="SET lease_ends_ms = :end",
            ExpressionAttributeValues={":end": {"N": str(end_ms)}},
        )


def test_usage_is_exact_with_two_readers_of_which_one_is_killed_repeatedly(
    table: OwnTable, repository: SyncRepository, tmp_path: Path
) -> None:
    check_killed_readers(table, repository, tmp_path, steps=300, kills=1)


def test_usage_of_many_steps_is_exact_with_two_readers_killed_repeatedly(
    table: OwnTable, repository: SyncRepository, tmp_path: Path
) -> None:
    check_killed_readers(table, repository, tmp_path, MANY_STEPS, kills=5)


def test_a_reader_that_catches_up_once_exits_with_everything_counted(
    table: OwnTable, repository: SyncRepository, tmp_path: Path
) -> None:
    charge(repository, 25)
    reader = Aggregator(table, tmp_path, "--once", "--windows", "daily")
    assert reader.wait() == 0, reader.errors()
    assert reader.lines()[-1]["ended"] is True
    assert counted(repository) == 25
    assert not snapshots_of(repository, "hourly")
    again = Aggregator(table, tmp_path, "--once", "--windows", "daily")
    assert again.wait() == 0
    assert again.lines()[-1]["processed"] == 0
    assert counted(repository) == 25
    # A reader with other windows does other work, and has a place of its own.
    assert Aggregator(table, tmp_path, "--once").wait() == 0
    for window in WINDOW_TYPES:
        assert sum(each.total_events for each in snapshots_of(repository, window)) == 25


def test_an_idle_table_is_not_written_to(
    table: OwnTable, repository: SyncRepository, tmp_path: Path
) -> None:
    charge(repository, 5)
    readers = [Aggregator(table, tmp_path), Aggregator(table, tmp_path)]
    try:
        wait_until(lambda: bool(checkpoints(table)), "a reader counts")
        wait_until(lambda: "record_id" in checkpoints(table)[0], "a checkpoint is written")
        before, image = len(read_stream(table)[1]), table.dump()
        time.sleep(8)
        assert len(read_stream(table)[1]) == before
        assert table.dump() == image
    finally:
        codes = [reader.end() for reader in readers]
    assert codes == [0, 0]
    assert counted(repository) == 5


def test_a_terminated_reader_saves_its_place_and_gives_back_its_lease(
    table: OwnTable, repository: SyncRepository, tmp_path: Path
) -> None:
    charge(repository, 5)
    reader = Aggregator(table, tmp_path)
    wait_until(reader.has_counted, "the reader counts")
    assert reader.end(signal.SIGTERM) == 0
    (checkpoint,) = checkpoints(table)
    assert checkpoint["lease_ends_ms"]["N"] == "0"
    charge(repository, 3)
    following = Aggregator(table, tmp_path, "--once")
    assert following.wait() == 0
    assert following.lines()[-1]["processed"] < 8
    assert counted(repository) == 8


def test_an_interrupted_reader_exits_with_130_after_saving_its_place(
    table: OwnTable, repository: SyncRepository, tmp_path: Path
) -> None:
    charge(repository, 5)
    reader = Aggregator(table, tmp_path)
    wait_until(reader.has_counted, "the reader counts")
    assert reader.end(signal.SIGINT) == 130
    assert "record_id" in checkpoints(table)[0]
    assert "Traceback" not in reader.errors()


def prolong_leases(table: OwnTable) -> None:
    """Let leases last for so long that they do not end in the midst of a test."""
    set_leases(table, round((time.time() + 540) * 1000))


def test_a_reader_leaves_records_to_the_reader_that_has_the_lease(
    table: OwnTable, repository: SyncRepository, tmp_path: Path
) -> None:
    readers = [Aggregator(table, tmp_path)]
    try:
        charge(repository, 1)
        wait_until(readers[0].has_counted, "the first reader has the lease")
        readers[0].process.send_signal(signal.SIGSTOP)
        prolong_leases(table)
        charge(repository, 40)
        readers.append(Aggregator(table, tmp_path))
        wait_until(readers[1].has_left_a_shard, "the second reader finds the lease")
        assert counted(repository) == 1
        readers[0].process.send_signal(signal.SIGCONT)
        wait_until(lambda: counted(repository) == 41, "the first reader goes on")
    finally:
        readers[0].process.send_signal(signal.SIGCONT)
        codes = [reader.end() for reader in readers]
    assert codes == [0, 0]
    first, second = (reader.lines()[-1]["processed"] for reader in readers)
    assert first >= 41
    assert second == 0


def test_the_usage_commands_say_when_nothing_counts(
    table: OwnTable, repository: SyncRepository, tmp_path: Path
) -> None:
    charge(repository, 1)
    store = ("--url", table.url, "-N", NAMESPACE)
    for command in ("list", "summary"):
        answer = CliRunner().invoke(cli, ["usage", command, "-e", "alone", *store])
        assert "nothing counts it" in answer.output
        for form in ("--json", "--csv"):
            answer = CliRunner().invoke(cli, ["usage", command, "-e", "alone", form, *store])
            assert "nothing counts it" in answer.stderr
            assert "nothing counts it" not in answer.stdout
    assert Aggregator(table, tmp_path, "--once").wait() == 0
    answer = CliRunner().invoke(cli, ["usage", "list", "-e", "alone", *store])
    assert RESOURCE in answer.output
    answer = CliRunner().invoke(cli, ["usage", "list", "-e", "hot", *store])
    assert answer.output == "No usage found\n"
    answer = CliRunner().invoke(cli, ["usage", "list", "-e", "hot", "--json", *store])
    assert (answer.stdout, answer.stderr) == ("[]\n", "")


def switch_stream(table: OwnTable, on: bool) -> None:
    view = {"StreamViewType": "NEW_AND_OLD_IMAGES"} if on else {}
    table.call("UpdateTable", StreamSpecification={"StreamEnabled": on, **view})


def test_usage_is_exact_when_the_stream_is_switched_off_and_on_again(tmp_path: Path) -> None:
    with (
        start("dynamodb-local") as server,
        own_table(server) as table,
        SyncRepository.open(NAMESPACE, url=table.url) as repository,
    ):
        repository.set_resource_defaults(RESOURCE, LIMITS)
        reader = Aggregator(table, tmp_path)
        charge(repository, 5)
        wait_until(lambda: counted(repository) == 5, "the first stream is counted")
        switch_stream(table, on=False)
        wait_until(lambda: "no stream" in reader.errors(), "the reader misses the stream")
        switch_stream(table, on=True)
        charge(repository, 4)
        wait_until(lambda: counted(repository) == 9, "the second stream is counted")
        assert reader.end() == 0
        assert "has a new stream" in reader.errors()
        # Nobody reads while another stream takes over.
        charge(repository, 2)
        switch_stream(table, on=False)
        switch_stream(table, on=True)
        charge(repository, 3)
        assert Aggregator(table, tmp_path, "--once").wait() == 0
        assert counted(repository) == 14
