"""Writes docs/cli.md from the help texts of the commands: `python -m tests.docs.cli_reference`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from zae_limiter.cli import cli

PAGE = Path(__file__).parent.parent.parent / "docs" / "cli.md"
_HEAD = """\
# Command line

Made from the commands' own help by `python -m tests.docs.cli_reference`; a test fails when the two
differ.

The store is `--url` (or `ZAEL_URL`), or the DynamoDB table of a stack: `--name` (or `ZAEL_STACK`)
with `--region` and `--endpoint-url`. An argument counts for more than the environment. Commands
that print data take `--json`. Errors go to standard error; the exit code is 0 for success, 1 for an
error, 2 for wrong usage, 130 after Ctrl-C.
"""


def commands(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[tuple[str, str]]:
    """Every command with its help, groups before what they hold."""
    settings = command.context_settings
    context = click.Context(
        command,
        parent,
        name,
        terminal_width=90,
        color=False,
        **settings,
    )
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for child_name in command.list_commands(context):
            child = command.get_command(context, child_name)
            assert child is not None
            yield from commands(child, child_name, context)


def render() -> str:
    """The whole page."""
    sections = [
        f"## {name}\n\n```text\n{text.strip()}\n```\n"
        for name, text in commands(cli, "zae-limiter")
    ]
    return "\n".join([_HEAD, *sections])


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
