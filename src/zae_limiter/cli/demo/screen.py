"""This module draws the demo, for a console of any width."""

from __future__ import annotations

from rich import box
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ...core.limit import MILLI, Limit
from ...core.limit_syntax import format_rate
from ...testing.history import Window
from .check import Verdict
from .record import Tally
from .report import Report
from .scenario import LIMITS, ORGANISATION
from .view import View


def make_console() -> Console:
    """Return a console on standard output that takes no printed text for markup."""
    return Console(highlight=False, markup=False, emoji=False)


def live(view: View) -> RenderableType:
    """Draw the run while it goes on."""
    elapsed_s = min(view.elapsed_s, view.seconds)
    clock = Table.grid(padding=(0, 1), expand=True)
    clock.add_column(ratio=1)
    clock.add_column(justify="right", no_wrap=True)
    bar = ProgressBar(total=view.seconds, completed=elapsed_s)
    clock.add_row(bar, f"{elapsed_s:.1f} of {view.seconds:g} s")
    return Group(clock, _balances(view))


def _balances(view: View) -> Table:
    table = Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False, collapse_padding=True)
    for header in ("Entity", "Limit"):
        table.add_column(header, no_wrap=True)
    for header in ("Rate", "Admitted", "Refused"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("", ratio=1)
    table.add_column("Balance", justify="right", no_wrap=True)
    for entity_id, limits in LIMITS.items():
        for limit in limits:
            account = (entity_id, limit.name)
            name = _name(entity_id) if limit is limits[0] else ""
            tally = view.tallies.get(account, Tally())
            balance = view.balances.get(account, limit.capacity)
            table.add_row(name, *_cells(limit, tally, balance))
    return table


def _name(entity_id: str) -> Text:
    return Text(entity_id, style="bold") if entity_id == ORGANISATION else Text(f"  {entity_id}")


def _cells(limit: Limit, tally: Tally, balance: int) -> list[RenderableType]:
    return [
        limit.name,
        format_rate(limit),
        f"{(tally.admitted_milli + tally.corrected_milli) // MILLI:,}",
        f"{tally.refused:,}",
        ProgressBar(total=limit.capacity, completed=max(0, balance)),
        f"{balance:,} of {limit.capacity:,}",
    ]


def final(report: Report, *, ascii_only: bool) -> RenderableType:
    """Draw the check and its outcome."""
    return Group(
        Text("\nIn any interval, admitted <= capacity + rate x time:", style="bold"),
        _verdicts(report, box.ASCII2 if ascii_only else box.ROUNDED),
        *_conclusions(report),
    )


def _verdicts(report: Report, style: box.Box) -> Table:
    table = Table(box=style)
    table.add_column("Entity")
    table.add_column("Limit")
    table.add_column("Whole run", justify="right")
    table.add_column("Closest interval", justify="right")
    table.add_column("Holds")
    for (entity_id, limit_name), verdict in report.verdicts.items():
        table.add_row(
            entity_id,
            limit_name,
            _comparison(verdict.whole),
            _interval(verdict.worst),
            _holds(verdict),
        )
    return table


def _comparison(window: Window) -> str:
    allowed = (window.taken_milli - window.excess_milli) // MILLI
    sign = "<=" if window.excess_milli <= 0 else ">"
    return f"{window.taken_milli // MILLI:,} {sign} {allowed:,}"


def _interval(window: Window) -> str:
    return f"{_comparison(window)} in {(window.end_ms - window.start_ms) / 1000:.2f} s"


def _holds(verdict: Verdict) -> Text:
    return Text("yes", style="green") if verdict.holds else Text("NO", style="bold red")


def _conclusions(report: Report) -> list[Text]:
    lines = [
        Text(
            f"{sum(report.record.admitted.values()):,} calls admitted and"
            f" {sum(report.record.refused.values()):,} refused in {report.seconds:.1f} s. To each"
            f" interval {report.skew_ms} ms are added, the longest call: a log cannot say when"
            " within a call the store acted."
        )
    ]
    if report.record.outages:
        lines.append(Text(f"The store did not answer {len(report.record.outages)} time(s)."))
    if report.interrupted:
        lines.append(Text("Interrupted: this is what ran so far.", style="yellow"))
    lines += [Text(f"FAILED: {failure}", style="bold red") for failure in report.failures]
    lines.append(_outcome(report))
    return lines


def _outcome(report: Report) -> Text:
    if not report.holds:
        return Text("NOT OK: a limit was exceeded.", style="bold red")
    if report.failures:
        return Text("NOT OK: every limit was kept, but the demo failed.", style="bold red")
    return Text("OK: every limit was kept.", style="bold green")
