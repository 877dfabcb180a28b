"""The JSON file of a run as the tables of docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and what a row says there: nothing, if it has no such figure."""

    heading: str
    cell: Callable[[_Row], str]
    is_figure: bool = True


def markdown(results: dict[str, Any]) -> str:
    """A table for each workload, and the targets if there are any."""
    parts = [_section(workload) for workload in results["workloads"]]
    targets = results.get("targets")
    return "\n\n".join([*parts, *([_targets(targets)] if targets else [])])


def _section(workload: dict[str, Any]) -> str:
    rows = workload["rows"]
    columns = [c for c in _COLUMNS if not c.is_figure or any(c.cell(row) for row in rows)]
    columns = [c for c in columns if c.heading != "with" or any(row["point"] for row in rows)]
    rules = ["---:" if column.is_figure else "---" for column in columns]
    lines = [[column.heading for column in columns], rules]
    lines += [[column.cell(row) for column in columns] for row in rows]
    return f"### {workload['title']}\n\n{_table(lines)}"


def _targets(targets: Sequence[dict[str, Any]]) -> str:
    lines = [["what", "aim", "found", ""], ["---"] * 4]
    lines += [[t["what"], t["aim"], t["found"], "" if t["met"] else "missed"] for t in targets]
    return f"### What we aim at\n\n{_table(lines)}"


def _table(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _median(name: str) -> Callable[[_Row], str]:
    def cell(row: _Row) -> str:
        typical = row["median"]
        if typical["footprint_bytes"] is not None:
            return ""
        value: float = typical[name]
        return f"{value:,.0f}" if name == "calls_per_s" or value >= 1000 else f"{value:.1f}"

    return cell


def _ratio(name: str) -> Callable[[_Row], str]:
    def cell(row: _Row) -> str:
        value: float | None = row[name]
        if value is None:
            return ""
        return f"{value:.0f}" if value >= 10 else f"{value:.2f}"

    return cell


def _unit(name: str, form: str = ".3g") -> Callable[[_Row], str]:
    def cell(row: _Row) -> str:
        counted = row["counted"]
        if counted is None or (name != "calls" and row["does"]["store"] != "dynamodb"):
            return ""
        return format(counted[name], form)

    return cell


def _bound(name: str) -> Callable[[_Row], str]:
    def cell(row: _Row) -> str:
        typical = row["median"]
        return "" if typical["bound"] is None else f"{typical[name]:,.0f}"

    return cell


def _footprint(row: _Row) -> str:
    held_bytes = row["median"]["footprint_bytes"]
    return "" if held_bytes is None else f"{held_bytes * 100_000 / 1e6:,.0f}"


_COLUMNS = (
    Column("limiter", lambda row: row["label"], is_figure=False),
    Column("with", lambda row: row["point"], is_figure=False),
    Column("per second", _median("calls_per_s")),
    Column("CPU µs", _median("cpu_us")),
    Column("p50 µs", _median("p50_us")),
    Column("p99 µs", _median("p99_us")),
    Column("MB per 100,000", _footprint),
    Column("admitted", _bound("admitted")),
    Column("allowed", _bound("bound")),
    Column("faster", _ratio("faster")),
    Column("leaner", _ratio("leaner")),
    Column("CPU grew", lambda row: "" if row["growth"] is None else f"x {row['growth']:.2f}"),
    Column("calls", _unit("calls")),
    Column("WCU", _unit("wcu")),
    Column("RCU", _unit("rcu")),
    Column("$ per million", _unit("dollars_per_million", ".3f")),
)
