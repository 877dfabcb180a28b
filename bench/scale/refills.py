"""Refills and splits by the reader of the stream: the model with them, and without.

python -m bench.scale.refills
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

from zae_limiter.flows.stream.aggregate import StreamSettings

from .figures import Figures, figures
from .hot_key import FALLING, FULL, SHORT, Case, HotKey
from .markdown import markdown

READERS = {
    "none": None,
    "splits": StreamSettings(("hourly",)),
    "splits and refills": StreamSettings(("hourly",), refills=True),
}
CASES = tuple(
    Case(level, acquires_per_s, processes, 3.0, 1.0)
    for level in (FALLING, FULL, SHORT)
    for acquires_per_s in (1000, 5000)
    for processes in (4, 20)
)
HEADINGS = (
    "bucket",
    "acquires/s",
    "processes",
    "reader",
    "admitted/s",
    "writes/s",
    "lost writes",
    "shards",
    "throttled/s",
    "p50 ms",
    "p99 ms",
    "WCU per 1,000",
)


def rows(seed: int = 1) -> Iterator[list[str]]:
    """One row for each case and reader."""
    for case in CASES:
        for name, reader in READERS.items():
            run = HotKey(replace(case, reader=reader), seed).run()
            wcu = 1000 * run.tally.wcu / max(1, len(run.answers.admitted_us))
            yield _cells(figures(run), name, wcu)


def _cells(each: Figures, reader: str, wcu: float) -> list[str]:
    return [
        each.bucket,
        f"{each.acquires_per_s:,}",
        f"{each.processes}",
        reader,
        f"{each.admitted_per_s:,.0f}",
        f"{each.writes_per_s:,.0f}",
        f"{each.lost_part:.0%}",
        f"{each.shards}",
        f"{each.throttled_per_s:,.0f}",
        f"{each.p50_ms:.1f}",
        f"{each.p99_ms:.1f}",
        f"{wcu:,.0f}",
    ]


if __name__ == "__main__":
    logging.getLogger("zae_limiter").setLevel(logging.CRITICAL)
    print(markdown(HEADINGS, list(rows())))
