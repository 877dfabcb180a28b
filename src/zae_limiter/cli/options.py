"""This module has the options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from ..core.exceptions import ValidationError
from ..core.limit import Limit
from ..core.validation import DEFAULT_RESOURCE
from ..flows.admin.audit import MAX_PAGE
from ..opening import DEFAULT_NAMESPACE
from .limit_syntax import FORM, parse_limit
from .target import Target

Command = TypeVar("Command", bound=Callable[..., Any])

_url = click.option(
    "--url",
    envvar="ZAEL_URL",
    show_envvar=True,
    required=True,
    help="The store, for example sqlite:///limits.db.",
)
_namespace = click.option(
    "--namespace",
    "-N",
    envvar="ZAEL_NAMESPACE",
    show_envvar=True,
    default=DEFAULT_NAMESPACE,
    show_default=True,
    help="The namespace.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
page_option = click.option(
    "--limit",
    "-l",
    type=click.IntRange(1, MAX_PAGE),
    default=100,
    show_default=True,
    help="How many at most.",
)
config_resource_option = click.option(
    "--resource",
    "-r",
    default=DEFAULT_RESOURCE,
    show_default=True,
    help="The resource; by default all that have no limits of their own.",
)


def store_options(command: Command) -> Callable[..., Any]:
    """Add `--url` and `--namespace`, given to the command as `target`."""

    @wraps(command)
    def with_target(*args: Any, url: str, namespace: str, **options: Any) -> Any:
        return command(*args, target=Target(url, namespace), **options)

    return _url(_namespace(with_target))


def registry_options(command: Command) -> Callable[..., Any]:
    """Add `--url` alone, for commands about namespaces."""

    @wraps(command)
    def with_target(*args: Any, url: str, **options: Any) -> Any:
        return command(*args, target=Target(url), **options)

    return _url(with_target)


def _read_limits(
    ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[Limit, ...]:
    try:
        return tuple(parse_limit(text) for text in texts)
    except (ValueError, ValidationError) as error:
        raise click.BadParameter(str(error)) from error


limits_option = click.option(
    "--limit",
    "-l",
    "limits",
    callback=_read_limits,
    multiple=True,
    required=True,
    metavar="LIMIT",
    help=f"{FORM}. Repeat for several.",
)


def examples(*lines: str, on_a_store: bool = True) -> str:
    """Return the end of a command's help, kept as it is typed."""
    typed = [f"zae-limiter {line}" for line in lines]
    if on_a_store:
        typed.insert(0, "export ZAEL_URL=sqlite:///limits.db")
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in typed)
