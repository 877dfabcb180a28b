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
with `--region` and `--endpoint-url`; both may stand before the command or after it. An argument
counts for more than the environment. Commands that print or change data take `--json`, and
[cli.schema.json](schemas/cli.schema.json) is the JSON Schema of what each prints. Errors go to
standard error. `zae-limiter completion bash|zsh|fish` prints the completion of a shell.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | an error; for `check`, `version`, `status` and `doctor`: something is wrong |
| 2 | wrong use |
| 3 | refused by a limit |
| 4 | the store could not answer |
| 126, 127 | `run`: the command cannot be run, or is not found; others are its own |
| 130 | interrupted |
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
