"""This module runs the command line inside the test, on a store of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from tests.support.cli_schema import assert_as_published
from zae_limiter.cli import cli


class Zael:
    """`zae-limiter`, with `ZAEL_URL` set to a SQLite file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"

    def run(self, *args: str, typed: str | None = None) -> Result:
        environment = {"ZAEL_URL": self.url, "ZAEL_STACK": None, "ZAEL_NAMESPACE": None}
        result = CliRunner().invoke(cli, args, input=typed, env=environment)
        expected = result.exception is None or isinstance(result.exception, SystemExit)
        assert expected, f"{args} ended with {result.exception!r}"
        return result

    def out(self, *args: str, typed: str | None = None) -> str:
        """Return the output of a command that succeeds."""
        result = self.run(*args, typed=typed)
        assert result.exit_code == 0, result.output
        assert not result.stderr
        return result.stdout

    def json(self, *args: str) -> Any:
        """Return what a command that succeeds prints as JSON, which must be as published."""
        printed = json.loads(self.out(*args, "--json"))
        assert_as_published(args, printed)
        return printed

    def error(self, *args: str, code: int = 1) -> str:
        """Return the error message of a command that fails and prints nothing on standard
        output."""
        result = self.run(*args)
        assert result.exit_code == code, result.output
        assert not result.stdout
        assert "Traceback" not in result.stderr
        return result.stderr
