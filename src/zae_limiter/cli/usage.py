"""`zae-limiter usage` shows usage by hour, day and month."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from ..core.exceptions import StorageUnavailable
from ..core.models import UsageSummary
from ..core.windows import WINDOW_TYPES
from ..ports.stream import StreamedStore
from ..runtime.blocking import run
from ..sync_repository import SyncRepository
from ..visualization import UsageFormatter, format_usage_snapshots
from .options import Command, examples, json_option, page_option, store_options
from .output import print_json, print_table, terminal_width
from .target import Target

_NOTHING_FOUND = "No usage found"
_NOTHING_COUNTED = (
    "No usage found, and it seems that nothing counts it: on DynamoDB a reader of the table's\n"
    "stream does, and none has left a checkpoint here.\n"
    "Hint: `zae-limiter aggregate` is one; start it within a day of the usage.\n"
    "A Lambda leaves no checkpoint."
)


@click.group()
def usage() -> None:
    """Usage of resources by entities."""


def _filter_options(command: Command) -> Command:
    for option in (
        click.option("--end", "end_time", help="Windows that begin then or before, ISO 8601."),
        click.option("--start", "start_time", help="Windows that begin then or later, ISO 8601."),
        click.option(
            "--window",
            "-w",
            "window_type",
            type=click.Choice(WINDOW_TYPES),
            help="Only windows of this type.",
        ),
        click.option("--resource", "-r", help="The resource. This or the entity is needed."),
        click.option("--entity-id", "-e", help="The entity. This or the resource is needed."),
    ):
        command = option(command)
    return command


def _require_subject(filters: dict[str, Any]) -> None:
    if filters["entity_id"] is None and filters["resource"] is None:
        raise click.UsageError("Give --entity-id, --resource or both.")


@usage.command("list", epilog=examples("usage list -e key-1 -w hourly --plot"))
@_filter_options
@page_option
@click.option("--plot", "-p", is_flag=True, help="Draw a chart for each limit.")
@json_option
@store_options
def list_usage(limit: int, plot: bool, as_json: bool, target: Target, **filters: Any) -> None:
    """List usage by window, newest first."""
    _require_subject(filters)
    with target.connect() as repository:
        found, following = repository.get_usage_snapshots(limit=limit, **filters)
        absence = "" if found else _absence(repository)
    if as_json:
        print_json([asdict(snapshot) for snapshot in found])
    elif not found:
        click.echo(absence)
    else:
        formatter = UsageFormatter.PLOT if plot else UsageFormatter.TABLE
        click.echo(format_usage_snapshots(found, formatter, width=terminal_width()))
        if following is not None:
            click.echo("There is more: narrow it by --start and --end, or raise --limit")


@usage.command(epilog=examples("usage summary -r gpt-4 -w daily"))
@_filter_options
@json_option
@store_options
def summary(as_json: bool, target: Target, **filters: Any) -> None:
    """Add up usage over windows."""
    _require_subject(filters)
    with target.connect() as repository:
        found = repository.get_usage_summary(**filters)
        absence = "" if found.snapshot_count else _absence(repository)
    if as_json:
        print_json(asdict(found))
    elif not found.snapshot_count:
        click.echo(absence)
    else:
        _print_summary(found)


def _absence(repository: SyncRepository) -> str:
    """Return the message that no usage was found, and why if nothing has ever counted it."""
    store = repository.scope.store
    if not isinstance(store, StreamedStore):
        return _NOTHING_FOUND
    try:
        has_reader = run(store.has_reader())
    except StorageUnavailable:
        # A role that may read usage need not be allowed to read the table's own records.
        return _NOTHING_FOUND
    return _NOTHING_FOUND if has_reader else _NOTHING_COUNTED


def _print_summary(found: UsageSummary) -> None:
    click.echo(
        f"{found.snapshot_count:,} window(s) from {found.min_window_start}"
        f" to {found.max_window_start}"
    )
    print_table(
        ["Limit", "Total", "Average"],
        [
            (name, f"{total:,}", f"{found.average[name]:,.1f}")
            for name, total in sorted(found.total.items())
        ],
        right=["Total", "Average"],
    )
