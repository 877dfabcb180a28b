"""Entry point of a process that is measured. Its one argument is the job."""

from __future__ import annotations

import sys

from .job import Job
from .measure import measure


def _wait_for_start() -> None:
    """Say that everything is ready, and wait for a line. If none comes, nobody is there."""
    print("ready", flush=True)
    if not sys.stdin.readline():
        sys.exit("nobody started the measurement")


if __name__ == "__main__":
    print(measure(Job.from_text(sys.argv[1]), _wait_for_start).to_text(), flush=True)
