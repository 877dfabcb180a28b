"""The results as tables: one for limiters without a server, one for those with."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from .summary import Row, keeps_limits
from .targets import Target
from .workloads.workload import Workload

_CAPTION = (
    "Medians of all rounds. Calls: how several limits are charged, by one call or by one each."
    " Atomic: whether all limits are charged or none, or each for itself. Refund: whether a charge"
    " can be given back. CPU: process time per acquire. Faster, leaner: how many times as"
    " fast as this row the first of its kind was, and how many times less CPU (or memory) it took."
)


_SHARED_CAPTION = (
    "Medians of all rounds. CPU: of the client, per acquire. Faster, leaner: how many times as fast"
    " as this row the first of its kind was, and how many times less CPU it took. Calls: round"
    " trips to the server per acquire; units with indexes; $ per million acquires, with a write"
    " unit for each refused write, as AWS bills it. Calls, units and dollars were counted"
    " in measurements of their own."
)
_FIGURES = ("per second", "CPU µs", "p50 µs", "p99 µs", "faster", "leaner")


def tables(found: Sequence[tuple[Workload, Sequence[Row]]]) -> Sequence[Table]:
    """Those that are not empty."""
    alone = [(w, rows) for w, rows in found if rows[0].counted is None]
    shared = [(w, rows) for w, rows in found if rows[0].counted is not None]
    made = []
    if alone:
        made.append(_sections(_empty(_CAPTION, ("algorithm", "calls", "atomic", "refund")), alone))
    if shared:
        units = ("calls", "WCU", "RCU", "$ per million")
        made.append(_sections(_empty(_SHARED_CAPTION, (), units), shared))
    return made


def _empty(caption: str, traits: Sequence[str], units: Sequence[str] = ()) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left")
    shown.add_column("", no_wrap=True)
    for heading in traits:
        shown.add_column(heading)
    for heading in (*_FIGURES, *units):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("")
    return shown


def _sections(shown: Table, found: Sequence[tuple[Workload, Sequence[Row]]]) -> Table:
    for workload, rows in found:
        shown.add_section()
        shown.add_row(f"[bold]{workload.title}[/bold]")
        for row in rows:
            shown.add_row(*_cells(row))
    return shown


def _cells(row: Row) -> list[str]:
    subject = row.case.subject
    traits = [subject.algorithm, subject.calls, subject.atomic, subject.refund]
    ratios = ["" if ratio is None else f"{ratio:.2f}" for ratio in (row.faster, row.leaner)]
    return [
        f"  {subject.label}",
        *(traits if row.counted is None else []),
        *_figures(row),
        *ratios,
        *_units(row),
        "; ".join(_remarks(row)),
    ]


def _units(row: Row) -> list[str]:
    if row.counted is None:
        return []
    each = row.counted.each
    calls = f"{each.calls:.3g}"
    if row.case.subject.store == "redis":
        return [calls, "", "", ""]
    return [calls, f"{each.wcu:.3g}", f"{each.rcu:.3g}", f"{each.dollars * 1_000_000:.3f}"]


def targets_table(reached: Sequence[Target]) -> Table:
    """What was aimed at, and what the run shows."""
    shown = Table("target", "aim", "found", "", box=box.SIMPLE_HEAD)
    for target in reached:
        shown.add_row(target.what, target.aim, target.found, "" if target.met else "MISSED")
    return shown


def _figures(row: Row) -> list[str]:
    typical = row.typical
    if typical.footprint_bytes is not None:
        return ["", "", "", ""]
    times_us = (typical.cpu_us, typical.p50_us, typical.p99_us)
    return [f"{typical.calls_per_s:,.0f}", *(f"{us:,.{1 if us < 1000 else 0}f}" for us in times_us)]


def _remarks(row: Row) -> list[str]:
    typical = row.typical
    remarks = [row.case.point] if row.case.point else []
    if row.growth is not None:
        remarks.append(f"CPU x {row.growth:.2f}")
    if typical.footprint_bytes is not None:
        remarks.append(f"{typical.footprint_bytes * 100_000 / 1e6:,.0f} MB per 100,000")
    if typical.bound is not None:
        kept = "kept" if keeps_limits(row) else "EXCEEDED"
        remarks.append(f"{kept}: {typical.admitted:,} of {typical.bound:,.0f}")
    if row.case.mixed:
        remarks.append(f"{typical.admitted:,} admitted")
    if typical.stray:
        wrong = "admitted" if row.case.expects_refusal else "refused"
        remarks.append(f"{typical.stray:,} {wrong} unexpectedly")
    return remarks
