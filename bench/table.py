"""The results as one table."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from .summary import Row, keeps_limits
from .workloads.workload import Workload

_CAPTION = (
    "Medians of all rounds. Calls: how several limits are charged, by one call or by one each."
    " Atomic: whether all limits are charged or none, or each for itself. Refund: whether a charge"
    " can be given back. CPU: process time per acquire. Faster, leaner: how many times as"
    " fast as this row the first of its kind was, and how many times less CPU (or memory) it took."
)


def table(found: Sequence[tuple[Workload, Sequence[Row]]]) -> Table:
    """One section for each workload."""
    shown = Table(box=box.SIMPLE_HEAD, caption=_CAPTION, caption_justify="left")
    shown.add_column("", no_wrap=True)
    for heading in ("algorithm", "calls", "atomic", "refund"):
        shown.add_column(heading)
    for heading in ("per second", "CPU µs", "p50 µs", "p99 µs", "faster", "leaner"):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("")
    for workload, rows in found:
        shown.add_section()
        shown.add_row(f"[bold]{workload.title}[/bold]")
        for row in rows:
            shown.add_row(*_cells(row))
    return shown


def _cells(row: Row) -> list[str]:
    subject = row.case.subject
    does = [subject.algorithm, subject.calls, subject.atomic, subject.refund]
    ratios = ["" if ratio is None else f"{ratio:.2f}" for ratio in (row.faster, row.leaner)]
    return [f"  {subject.label}", *does, *_figures(row), *ratios, "; ".join(_remarks(row))]


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
    if typical.stray:
        wrong = "admitted" if row.case.expects_refusal else "refused"
        remarks.append(f"{typical.stray:,} {wrong} unexpectedly")
    return remarks
