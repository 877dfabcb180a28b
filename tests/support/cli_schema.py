"""This module holds what commands print with `--json` against the published schema."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import click
from jsonschema import Draft202012Validator

from zae_limiter.cli import cli

SCHEMA = Path(__file__).parent.parent.parent / "docs" / "schemas" / "cli.schema.json"


@cache
def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return found


def command_name(args: tuple[str, ...]) -> str:
    """Return the name of the command that arguments call, with dashes between its words."""
    command: click.Command = cli
    words: list[str] = []
    for arg in args:
        if not isinstance(command, click.Group):
            break
        following = command.commands.get(arg)
        if following is not None:
            command = following
            words.append(arg)
    return "-".join(words)


def assert_as_published(args: tuple[str, ...], printed: Any) -> None:
    """Fail if a command printed anything else than its schema says."""
    name = command_name(args)
    assert name in schema()["$defs"], f"{SCHEMA.name} has no {name}"
    Draft202012Validator({**schema(), "$ref": f"#/$defs/{name}"}).validate(printed)
