"""Shells complete commands and options."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli_runner import Zael

SCRIPT = Path(sys.executable).parent / "zae-limiter"


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_every_shell_has_a_script_that_its_parser_accepts(shell: str, zael: Zael) -> None:
    script = zael.out("completion", shell)
    assert "_ZAE_LIMITER_COMPLETE" in script
    parser = shutil.which(shell)
    if parser is not None:
        subprocess.run([parser, "-n"], input=script, text=True, check=True)


def completed(words: str, current: str) -> list[str]:
    """Return what the script of bash asks for, and is answered."""
    asked = {
        "_ZAE_LIMITER_COMPLETE": "bash_complete",
        "COMP_WORDS": f"zae-limiter {words}",
        "COMP_CWORD": current,
    }
    done = subprocess.run(
        [str(SCRIPT)], env={**os.environ, **asked}, capture_output=True, text=True, check=True
    )
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_commands_and_options_are_completed() -> None:
    assert completed("ent", "1") == ["entity"]
    assert "--with-custom-limits" in completed("entity list --w", "3")
    assert completed("usage top -w h", "4") == ["hourly"]
