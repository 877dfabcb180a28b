"""What we aim at, held against what a run shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .subjects import BARE, OURS
from .summary import Counted, Row
from .workloads.shared import FIRST, LAST
from .workloads.workload import Workload

_EXISTING = f"{OURS}-0.17.0"
# Where 0.17.0 makes as many calls as we do, so that their CPU can be compared.
_SAME_CALLS = {
    "shared-one-key": "a warm acquire",
    "shared-full": "an acquire from a full bucket",
    "shared-50-keys": "50 tasks with a key for each",
    "shared-cascade-2": "an acquire with a parent",
    "shared-adjust": "an acquire and its adjustment",
    "shared-threads": "16 threads with a key for each",
}

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
    for name, what in _SAME_CALLS.items():
        row = rows.get((name, _EXISTING))
        if row and row.leaner:
            yield Target(
                f"client CPU of {what}, against 0.17.0",
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
        refusals, spent = counted.calls - counted.admitted, calls_for_refusals(counted)
        beyond = calls_beyond_the_first(counted)
        yield Target(
            "calls for refusals, after the first of each bucket and second",
            "0",
            f"{beyond:.0f} for {refusals:,} refusals; {spent - beyond:.0f} were the first",
            beyond == 0,
        )


def calls_for_refusals(counted: Counted) -> float:
    """What is left when each that was admitted has had one call."""
    return counted.total.calls - counted.admitted


def calls_beyond_the_first(counted: Counted) -> float:
    """Of these, all but those by which a bucket refused and had not done so for a second."""
    return calls_for_refusals(counted) - (counted.total.refused - counted.total.again)


def _steady(rows: Rows) -> Iterator[Target]:
    first, last = rows.get((FIRST.name, BARE.name)), rows.get((LAST.name, BARE.name))
    if first and last:
        share = last.typical.calls_per_s / first.typical.calls_per_s
        yield Target(
            f"bare UpdateItems/s at the end of the run, against {first.typical.calls_per_s:,.0f}"
            " at its beginning",
            "at least 80 %",
            f"{100 * share:.0f} %",
            share >= 0.8,
        )


_TARGETS = (_leaner, _share_of_bare, _hot_key, _refusals, _steady)
