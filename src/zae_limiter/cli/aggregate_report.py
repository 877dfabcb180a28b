"""This module shows how far a reader of a stream is: to a program, a pipe or a terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

import click

from ..flows.stream.progress import FollowProgress, ShardReading

if TYPE_CHECKING:
    from rich.console import RenderableType

_EVERY_S = 1.0
_MAX_ROWS = 20

ShowProgress = Callable[[FollowProgress], None]


class Reporter(Protocol):
    """A reporter is shown the progress after every round, and at the end."""

    def showing(self, url: str) -> AbstractContextManager[ShowProgress]:
        """Return a context that gives a function to be called after every round."""

    def end(self, progress: FollowProgress) -> None:
        """Show the progress at the end."""


def choose_reporter(as_json: bool) -> Reporter:
    """Return the reporter that suits standard output."""
    if as_json:
        return JsonLines()
    return LiveTable() if sys.stdout.isatty() else PlainLines()


def fields_of(progress: FollowProgress) -> dict[str, int]:
    """Return the progress as JSON-ready numbers."""
    return {
        "shards": len(progress.shards),
        "shards_of_others": progress.shards_of_others,
        "records": progress.records,
        "processed": progress.processed,
        "snapshots_updated": progress.snapshots_updated,
        "refills_written": progress.refills_written,
        "splits": progress.splits,
        "events_archived": progress.events_archived,
        "skipped": progress.skipped,
        "failures": progress.failures,
        "checkpoints": progress.checkpoints,
        "lag_ms": progress.lag_ms,
    }


class JsonLines:
    """A program is shown a line of JSON when something has changed, and at the end."""

    @contextmanager
    def showing(self, url: str) -> Iterator[ShowProgress]:
        yield _when_changed(lambda progress: _print_line(progress, ended=False))

    def end(self, progress: FollowProgress) -> None:
        _print_line(progress, ended=True)


def _print_line(progress: FollowProgress, *, ended: bool) -> None:
    click.echo(json.dumps({**fields_of(progress), "ended": ended}))
    sys.stdout.flush()


class PlainLines:
    """A pipe is shown a line when something has changed, without control codes."""

    @contextmanager
    def showing(self, url: str) -> Iterator[ShowProgress]:
        click.echo(f"Following the stream of {url}")
        sys.stdout.flush()
        yield _when_changed(lambda progress: click.echo(summary_line(progress)))

    def end(self, progress: FollowProgress) -> None:
        click.echo(f"Ended. {summary_line(progress)}")


def summary_line(progress: FollowProgress) -> str:
    """Return the progress in a sentence."""
    troubles = {"skipped": progress.skipped, "failures": progress.failures}
    told = "".join(f", {count:,} {name}" for name, count in troubles.items() if count)
    others = progress.shards_of_others
    left = f" ({others:,} of them left to other readers)" if others else ""
    return (
        f"{progress.processed:,} changes counted in {progress.snapshots_updated:,} additions,"
        f" {len(progress.shards):,} shard(s){left}, {progress.lag_ms / 1000:.1f} s behind{told}"
    )


class LiveTable:
    """A terminal is redrawn after every round."""

    @contextmanager
    def showing(self, url: str) -> Iterator[ShowProgress]:
        from rich.console import Console
        from rich.live import Live

        console = Console(highlight=False, markup=False, emoji=False)
        console.print(f"Following the stream of {url}", soft_wrap=True)
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield lambda progress: live.update(draw_progress(progress), refresh=True)

    def end(self, progress: FollowProgress) -> None:
        click.echo(summary_line(progress))


def draw_progress(progress: FollowProgress) -> RenderableType:
    """Draw the sums, and a row for each of the first shards."""
    from rich import box
    from rich.console import Group
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("Stream shard", no_wrap=True)
    table.add_column("State", no_wrap=True)
    table.add_column("Behind", justify="right", no_wrap=True)
    readings = sorted(progress.shards.values(), key=lambda reading: reading.shard_id)
    for reading in readings[:_MAX_ROWS]:
        table.add_row(reading.shard_id, _state(reading), f"{reading.lag_ms / 1000:.1f} s")
    if len(readings) > _MAX_ROWS:
        table.add_row(f"and {len(readings) - _MAX_ROWS:,} more", "", "")
    return Group(table, summary_line(progress))


def _state(reading: ShardReading) -> str:
    if reading.leased_until_ms:
        return "counting"
    return "another reader's" if reading.idle_until_ms else "waiting"


def _when_changed(show: ShowProgress) -> ShowProgress:
    """Show a progress that has changed, at most once a second."""
    shown: dict[str, int] = {}
    due_s = 0.0

    def show_if_due(progress: FollowProgress) -> None:
        nonlocal shown, due_s
        fields = {k: n for k, n in fields_of(progress).items() if k not in ("records", "lag_ms")}
        if fields != shown and time.monotonic() >= due_s:
            shown, due_s = fields, time.monotonic() + _EVERY_S
            show(progress)

    return show_if_due
