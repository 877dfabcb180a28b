"""Run many seeds: `python -m tests.simulation --seeds 20000 [--start 0] [--receipts]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from .campaign import Broken, kept_seeds, run_receipt_seed, run_seed, run_stream_seed
from .world import World

_REPORT_EVERY_S = 2.0


def main() -> int:
    """0 when every promise held in every run, 1 when a seed has broken one."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--stream", action="store_true", help="with readers of the stream")
    parser.add_argument("--receipts", action="store_true", help="with keys and tokens")
    asked = parser.parse_args()
    is_plain = not (asked.stream or asked.receipts)
    kept = kept_seeds() if asked.seeds > 1 and is_plain else []
    seeds = [*kept, *range(asked.start, asked.start + asked.seeds)]
    try:
        special = run_stream_seed if asked.stream else run_receipt_seed
        _run_all(seeds, run_seed if is_plain else special)
    except Broken as broken:
        print(f"\n{broken}", file=sys.stderr)
        return 1
    return 0


def _run_all(seeds: list[int], run_one: Callable[[int], World]) -> None:
    began_s = reported_s = time.monotonic()
    leases = 0
    for done, seed in enumerate(seeds, 1):
        leases += len(run_one(seed).watch.stories)
        now_s = time.monotonic()
        if now_s - reported_s >= _REPORT_EVERY_S or done == len(seeds):
            reported_s = now_s
            done_pct, seconds = 100 * done // len(seeds), int(now_s - began_s)
            print(f"{done_pct:3}%  {done} runs, {leases} leases, {seconds} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
