"""What we aim at, held against what a run shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .subjects import BARE, OURS
from .summary import Counted, Row
from .workloads.shared import DRAINED
from .workloads.workload import Workload

_EXISTING = f"{OURS}-0.17.0"

Rows = Mapping[tuple[str, str], Row]
"""By the names of workload and case."""


@dataclass(frozen=True, slots=True)
class Target:
    """One of them, in words."""

    what: str
    aim: str
    found: str
    met: bool


def targets(found: Sequence[tuple[Workload, Sequence[Row]]]) -> list[Target]:
    """Those that this run says something of."""
    rows = {(w.name, row.case.name): row for w, all_rows in found for row in all_rows}
    return [target for each in _TARGETS for target in each(rows)]


def _leaner(rows: Rows) -> Iterator[Target]:
    row = rows.get(("shared-one-key", _EXISTING))
    if row and row.leaner:
        yield Target(
            "client CPU of a warm acquire, against 0.17.0",
            "at least 5 times less",
            f"{row.leaner:.1f} times less",
            row.leaner >= 5,
        )


def _share_of_bare(rows: Rows) -> Iterator[Target]:
    row = rows.get(("shared-50-keys", BARE.name))
    if row and row.faster:
        yield Target(
            f"50 keys, 50 tasks, against {row.typical.calls_per_s:,.0f} bare UpdateItems/s",
            "at least 85 %",
            f"{100 * row.faster:.0f} %",
            row.faster >= 0.85,
        )


def _hot_key(rows: Rows) -> Iterator[Target]:
    theirs = rows.get(("shared-hot-200", _EXISTING))
    if theirs and theirs.faster:
        yield Target(
            "one key, 200 tasks: acquires per second, against 0.17.0",
            "at least 20 times",
            f"{theirs.faster:.0f} times",
            theirs.faster >= 20,
        )
    ours = rows.get(("shared-hot-200", OURS))
    if ours and ours.counted:
        wcu = ours.counted.each.wcu
        yield Target("one key, 200 tasks: WCU per acquire", "at most 0.1", f"{wcu:.3f}", wcu <= 0.1)


def _refusals(rows: Rows) -> Iterator[Target]:
    row = rows.get(("shared-refusals", OURS))
    if row and row.counted:
        counted = row.counted
        spent = calls_for_refusals(counted)
        yield Target(
            "calls per refusal of a bucket that is known to be short",
            "0, and 1 a second for each",
            f"{spent:.0f} for {counted.calls - counted.admitted:,} refusals of {DRAINED} buckets"
            f" in {counted.elapsed_s:.1f} s",
            spent <= DRAINED * (counted.elapsed_s + 1),
        )


def calls_for_refusals(counted: Counted) -> float:
    """What is left when each that was admitted has had one call."""
    return counted.total.calls - counted.admitted


_TARGETS = (_leaner, _share_of_bare, _hot_key, _refusals)
