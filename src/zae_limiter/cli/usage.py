"""`zae-limiter usage` shows usage by hour, day and month."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from ..core.models import UsageSnapshot, UsageSummary
from ..core.windows import WINDOW_TYPES
from ..sync_repository import SyncRepository
from ..visualization import UsageFormatter, format_usage_snapshots
from ..visualization.usage import usage_series
from .options import examples, page_option, store_options
from .output import print_line, print_lines, print_table, terminal_width
from .target import Target
from .usage_options import OutputForm, Printed, absence, bars, filter_options, form_options
from .usage_top import top
from .watching import watch_option, watched

_SNAPSHOT_COLUMNS = (
    "entity_id",
    "resource",
    "window_type",
    "window_start",
    "window_end",
    "total_events",
    "limit",
    "amount",
)


@click.group()
def usage() -> None:
    """Usage of resources by entities."""


usage.add_command(top)


@usage.command(
    "list", epilog=examples("usage list -e key-1 -w hourly --plot", "usage list -r gpt-4 --csv")
)
@filter_options
@page_option
@click.option("--plot", "-p", is_flag=True, help="Draw a chart for each limit.")
@watch_option
@form_options
@store_options
def list_usage(
    limit: int,
    plot: bool,
    watch: float | None,
    form: OutputForm,
    target: Target,
    filters: dict[str, Any],
) -> None:
    """List usage by window, newest first."""
    formatter = UsageFormatter.PLOT if plot else UsageFormatter.TABLE
    with target.connect() as repository:

        def show() -> None:
            _page(repository, limit, filters, formatter).print(form)

        watched(watch, show, as_text=form == "text")


def _page(
    repository: SyncRepository, limit: int, filters: dict[str, Any], formatter: UsageFormatter
) -> Printed:
    found, following = repository.get_usage_snapshots(limit=limit, **filters)

    def text() -> None:
        if not found:
            print_lines(absence(repository).splitlines())
            return
        click.echo(format_usage_snapshots(found, formatter, width=terminal_width()))
        if following is not None:
            print_line("There is more: narrow it by --start and --end, or raise --limit")

    rows = [row for snapshot in found for row in _rows(snapshot)]
    return Printed(repository, [asdict(each) for each in found], _SNAPSHOT_COLUMNS, rows, text)


def _rows(snapshot: UsageSnapshot) -> list[tuple[object, ...]]:
    window = (snapshot.window_type, snapshot.window_start, snapshot.window_end)
    whose = (snapshot.entity_id, snapshot.resource, *window, snapshot.total_events)
    return [(*whose, name, amount) for name, amount in sorted(snapshot.counters.items())]


@usage.command(epilog=examples("usage summary -r gpt-4 -w daily"))
@filter_options
@watch_option
@form_options
@store_options
def summary(watch: float | None, form: OutputForm, target: Target, filters: dict[str, Any]) -> None:
    """Add up usage over windows: those of the shortest type that is kept, unless -w names one."""
    with target.connect() as repository:

        def show() -> None:
            _sums(repository, filters).print(form)

        watched(watch, show, as_text=form == "text")


def _sums(repository: SyncRepository, filters: dict[str, Any]) -> Printed:
    window_type, found = _summary(repository, filters)

    def text() -> None:
        if found.snapshot_count:
            _print_summary(window_type, found)
        else:
            print_lines(absence(repository).splitlines())

    rows = [(name, total, found.average[name]) for name, total in sorted(found.total.items())]
    told = {"window_type": window_type, **asdict(found)}
    return Printed(repository, told, ("limit", "total", "average"), rows, text)


def _summary(repository: SyncRepository, filters: dict[str, Any]) -> tuple[str, UsageSummary]:
    """Return the sums over windows of the type that was given, or of the shortest type that there
    are windows of. Without this, use would count once for each type that is kept."""
    given = filters["window_type"]
    *shorter, last = WINDOW_TYPES if given is None else (given,)
    for window_type in shorter:
        found = repository.get_usage_summary(**{**filters, "window_type": window_type})
        if found.snapshot_count:
            return window_type, found
    return last, repository.get_usage_summary(**{**filters, "window_type": last})


def _print_summary(window_type: str, found: UsageSummary) -> None:
    span = f"from {found.min_window_start} to {found.max_window_start}"
    print_line(f"{found.snapshot_count:,} {window_type} window(s) {span}")
    print_table(
        ["Limit", "Total", "Average"],
        [
            (name, f"{total:,}", f"{found.average[name]:,.1f}")
            for name, total in sorted(found.total.items())
        ],
        right=["Total", "Average"],
    )


@usage.command(
    epilog=examples("usage plot -e key-1 -w hourly", "usage plot -r gpt-4 -w hourly --spark")
)
@filter_options
@page_option
@click.option("--spark", is_flag=True, help="Draw a line of bars for each limit, not a chart.")
@watch_option
@form_options
@store_options
def plot(
    limit: int,
    spark: bool,
    watch: float | None,
    form: OutputForm,
    target: Target,
    filters: dict[str, Any],
) -> None:
    """Draw usage over time, oldest first, added up over entities and resources."""
    with target.connect() as repository:

        def show() -> None:
            _series(repository, limit, filters, spark).print(form)

        watched(watch, show, as_text=form == "text")


def _series(
    repository: SyncRepository, limit: int, filters: dict[str, Any], spark: bool
) -> Printed:
    found, _ = repository.get_usage_snapshots(limit=limit, **filters)
    series = usage_series(found)
    points = [
        {"window_type": window_type, "limit": name, "window_start": start, "amount": amount}
        for (window_type, name), amounts in sorted(series.items())
        for start, amount in sorted(amounts.items())
    ]

    def text() -> None:
        if not found:
            print_lines(absence(repository).splitlines())
        elif spark:
            shown = format_usage_snapshots(
                found, UsageFormatter.SPARK, width=terminal_width(), bars=bars()
            )
            click.echo(shown)
        else:
            width = terminal_width()
            click.echo(format_usage_snapshots(found, UsageFormatter.PLOT, width=width))

    columns = ("window_type", "limit", "window_start", "amount")
    return Printed(repository, points, columns, [tuple(point.values()) for point in points], text)
