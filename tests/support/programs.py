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


def ignoring_interrupts() -> list[str]:
    """The beginning of a command that runs the rest of it as shells run jobs in the background,
    and `nohup make test &` all tests: without interrupts."""
    return _with_interrupts("SIG_IGN")


def hearing_interrupts() -> list[str]:
    """The beginning of a command that can be interrupted, also if these tests cannot."""
    return _with_interrupts("SIG_DFL")


def _with_interrupts(handler: str) -> list[str]:
    change = f"import os, signal, sys; signal.signal(signal.SIGINT, signal.{handler})"
    return [sys.executable, "-c", f"{change}; os.execv(sys.argv[1], sys.argv[1:])"]
