"""These small programs need a process of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def output_of(program: str, *arguments: str) -> str:
    """Return what a program prints. The program must end well, in time, and without warnings."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout
