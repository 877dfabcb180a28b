"""`python -m zae_limiter` and the script `zae-limiter` run the command line.

This module is not in the package of the commands, whose import takes longer than all else that
happens before a command runs: an interrupt in that time must end with a message, too.
"""

from __future__ import annotations

import os
import sys

_INTERRUPTED = 130


def run_typed_command() -> None:
    """Run the command that was typed, and exit."""
    _give_streams()
    try:
        from .cli import cli

        cli(prog_name="zae-limiter")
    except KeyboardInterrupt:
        sys.stderr.write("Error: interrupted\n")
        sys.exit(_INTERRUPTED)


def _give_streams() -> None:
    """Let output go nowhere if standard output or standard error are closed (`>&-`)."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # The stream lives as long as the process.
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


if __name__ == "__main__":
    run_typed_command()
