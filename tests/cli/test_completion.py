"""Shells complete commands and options."""

from __future__ import annotations

import os
import re
import shlex
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


def bash_replies(line: str) -> list[str]:
    """Return the completions of a line by a bash that has loaded its script. Bash itself cuts the
    line into words, at colons, too."""
    words = [word for word in re.split(r"\s+|(:)", line) if word] + [""] * line.endswith(" ")
    program = f"""
eval "$({SCRIPT} completion bash)"
complete -p zae-limiter
COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1}
COMP_LINE={shlex.quote(line)} COMP_POINT={len(line)}
_zae_limiter_completion {SCRIPT}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    loaded, *replies = done.stdout.splitlines()
    assert "-F _zae_limiter_completion zae-limiter" in loaded
    return replies


def test_a_bash_that_has_loaded_the_script_completes_commands() -> None:
    assert bash_replies("zae-limiter ent") == ["entity"]
    assert bash_replies("zae-limiter completion ") == ["bash", "fish", "zsh"]


def test_a_url_before_the_word_at_hand_does_not_stop_bash_from_completing() -> None:
    url = "--url sqlite:///limits.db"
    assert bash_replies(f"zae-limiter {url} entity sho") == ["show"]
    assert bash_replies(f"zae-limiter entity list {url} --wi") == ["--with-custom-limits"]


def test_commands_and_options_are_completed() -> None:
    assert completed("ent", "1") == ["entity"]
    assert "--with-custom-limits" in completed("entity list --w", "3")
    assert completed("usage top -w h", "4") == ["hourly"]
