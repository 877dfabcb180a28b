"""The progress of `zae-limiter aggregate`, as a table, as lines and as JSON."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from zae_limiter.cli.aggregate_report import (
    JsonLines,
    PlainLines,
    choose_reporter,
    draw_progress,
)
from zae_limiter.flows.stream.progress import FollowProgress, ShardReading


@pytest.fixture
def progress() -> FollowProgress:
    made = FollowProgress(records=90, processed=1234, snapshots_updated=12)
    made.shards = {
        "shard-1": ShardReading("shard-1", leased_until_ms=1, lag_ms=1500),
        "shard-2": ShardReading("shard-2", idle_until_ms=1),
        "shard-3": ShardReading("shard-3"),
    }
    return made


def drawn(progress: FollowProgress) -> str:
    console = Console(file=io.StringIO(), width=80)
    with console.capture() as capture:
        console.print(draw_progress(progress))
    return capture.get()


def test_the_table_has_a_row_for_each_shard_and_the_sums(progress: FollowProgress) -> None:
    text = drawn(progress)
    rows = {line.split()[0]: line for line in text.splitlines() if " shard-" in f" {line}"}
    assert "counting" in rows["shard-1"]
    assert "1.5 s" in rows["shard-1"]
    assert "another reader's" in rows["shard-2"]
    assert "waiting" in rows["shard-3"]
    assert "1,234 changes counted in 12 additions" in text
    assert "(1 of them left to other readers)" in " ".join(text.split())


def test_the_table_of_many_shards_is_cut(progress: FollowProgress) -> None:
    progress.shards = {f"s-{n:03}": ShardReading(f"s-{n:03}") for n in range(100)}
    text = drawn(progress)
    assert "and 80 more" in text
    assert len(text.splitlines()) < 30


def test_lines_are_printed_when_something_changed(
    progress: FollowProgress, capsys: pytest.CaptureFixture[str]
) -> None:
    reporter = PlainLines()
    with reporter.showing("dynamodb://here/stack") as show:
        show(progress)
        show(progress)
    progress.failures = 2
    reporter.end(progress)
    heading, line, last = capsys.readouterr().out.splitlines()
    assert heading == "Following the stream of dynamodb://here/stack"
    assert line.endswith("3 shard(s) (1 of them left to other readers), 1.5 s behind")
    assert last.startswith("Ended. ")
    assert last.endswith("2 failures")


def test_json_lines_have_the_counts(
    progress: FollowProgress, capsys: pytest.CaptureFixture[str]
) -> None:
    reporter = choose_reporter(as_json=True)
    assert isinstance(reporter, JsonLines)
    with reporter.showing("") as show:
        show(progress)
    reporter.end(progress)
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["processed"] == 1234
    assert first["lag_ms"] == 1500
    assert (first["ended"], last["ended"]) == (False, True)
