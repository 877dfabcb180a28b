"""This module reads the manifest that a command is about."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import click
from click.core import ParameterSource

from ..core.exceptions import ManifestError
from ..core.manifest import Manifest
from ..manifest_file import load_manifest, read_manifest_bytes
from .options import Command
from .target import Target

_STANDARD_INPUT = "-"


def manifest_argument(command: Command) -> Callable[..., Any]:
    """Add the manifest, as an argument or as `--file`, given to the command as `manifest`."""

    @wraps(command)
    def with_manifest(*args: Any, file: str | None, named: str | None, **options: Any) -> Any:
        if (file is None) == (named is None):
            raise click.UsageError("Name one manifest: FILE, or --file FILE.")
        return command(*args, manifest=_read(file or named or ""), **options)

    path = click.Path(exists=True, dir_okay=False, allow_dash=True)
    with_option: Callable[..., Any] = click.option(
        "--file", "-f", "named", type=path, help="The manifest, in place of FILE; - is stdin."
    )(with_manifest)
    return click.argument("file", type=path, required=False)(with_option)


def _read(file: str) -> Manifest:
    try:
        if file == _STANDARD_INPUT:
            return read_manifest_bytes(sys.stdin.buffer, "<stdin>")
        return load_manifest(file)
    except ManifestError as error:
        raise click.ClickException("\n".join(error.lines)) from error


def aimed(target: Target, manifest: Manifest) -> Target:
    """Return the target with the namespace of the manifest, unless another one was typed."""
    source = click.get_current_context().get_parameter_source("namespace")
    if source is ParameterSource.COMMANDLINE:
        return target
    return replace(target, namespace=manifest.namespace)


def is_from_stdin() -> bool:
    """Whether the manifest of the command that runs came from standard input."""
    typed = click.get_current_context().params
    return _STANDARD_INPUT in (typed["file"], typed["named"])
