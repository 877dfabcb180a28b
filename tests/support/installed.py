"""This module runs the installed `zae-limiter` as a process, with a terminal or without one."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

from tests.support.cli_schema import assert_as_published
from tests.support.programs import hearing_interrupts
from tests.support.servers.tables import OwnTable
from tests.support.web_servers import environment

SCRIPT = Path(sys.executable).parent / "zae-limiter"
_ROWS = 40
_DEADLINE_S = 120
_SILENCE_S = 5
CTRL_C = "\x03"


class Installed:
    """`zae-limiter` in a folder of its own, with `ZAEL_URL` set. `table`: the table behind it."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.environment = {**environment(), "ZAEL_URL": url}
        for name in ("COLUMNS", "LINES"):
            # Several test processes at once have these set, and they count more than a terminal.
            self.environment.pop(name, None)
        self.table: OwnTable | None = None

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run a command without a terminal."""
        done = subprocess.run(
            [str(SCRIPT), *args],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def out(self, *args: str, code: int = 0) -> str:
        """Return the output of a command that ends with a code."""
        done = self.run(*args)
        assert done.returncode == code, f"{args}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *args: str, code: int = 0) -> Any:
        """Return what a command prints as JSON, which must be as published."""
        printed = json.loads(self.out(*args, "--json", code=code))
        assert_as_published(args, printed)
        return printed

    def on_terminal(
        self, *args: str, columns: int, awaited: str = "", typed: str = ""
    ) -> tuple[int, str]:
        """Return the exit code and the screen of a command on a terminal. When it shows the awaited
        text, `typed` is typed, and again when nothing comes of it: an interrupt right before a
        question begins to read is heard with the next key only."""
        process, terminal = pty.fork()
        if process == 0:
            _resize(0, columns)
            os.chdir(self.folder)
            os.execve(sys.executable, [*hearing_interrupts(), str(SCRIPT), *args], self.environment)
        try:
            shown = _read_screen(terminal, awaited, typed)
        finally:
            os.close(terminal)
        _, status = os.waitpid(process, 0)
        return os.waitstatus_to_exitcode(status), shown.replace("\r\n", "\n")


def _resize(terminal: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, columns, 0, 0))


def _read_screen(terminal: int, awaited: str, typed: str) -> str:
    shown = b""
    has_typed = False
    ends_at = time.monotonic() + _DEADLINE_S
    while time.monotonic() < ends_at:
        is_silent = not select.select([terminal], [], [], _SILENCE_S)[0]
        if not is_silent:
            try:
                part = os.read(terminal, 65536)
            except OSError:
                # Linux says so when the last program has left the terminal.
                part = b""
            if not part:
                return shown.decode()
            shown += part
        if typed and awaited.encode() in shown and (is_silent or not has_typed):
            os.write(terminal, typed.encode())
            has_typed = True
    raise AssertionError(f"no end within {_DEADLINE_S} s: {shown.decode()}")
