"""This module has the options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from ..backends.dynamodb.url import dynamodb_url
from ..core.exceptions import ValidationError
from ..core.limit import Limit
from ..core.limit_syntax import FORM
from ..core.validation import DEFAULT_RESOURCE
from ..flows.admin.audit import MAX_PAGE
from ..naming import DEFAULT_NAMESPACE
from .target import Target

Command = TypeVar("Command", bound=Callable[..., Any])

_STORE = (
    click.option(
        "--url",
        envvar="ZAEL_URL",
        show_envvar=True,
        help="The store, for example sqlite:///limits.db.",
    ),
    click.option(
        "--name",
        "-n",
        "stack",
        envvar="ZAEL_STACK",
        show_envvar=True,
        help="The stack, in place of --url: a DynamoDB table of this name.",
    ),
    click.option("--region", help="The AWS region of the stack."),
    click.option("--endpoint-url", help="The endpoint of the stack, if it is not AWS."),
)
_STORE_NAMES = ("url", "stack", "region", "endpoint_url")
_namespace = click.option(
    "--namespace",
    "-N",
    envvar="ZAEL_NAMESPACE",
    show_envvar=True,
    default=DEFAULT_NAMESPACE,
    show_default=True,
    help="The namespace.",
)
_principal = click.option(
    "--principal",
    envvar="ZAEL_PRINCIPAL",
    show_envvar=True,
    help="Who makes the change; by default the user, or the caller's ARN on AWS.",
)
_TYPED = ParameterSource.COMMANDLINE
_NO_STORE = (
    "Name the store: --url (or ZAEL_URL), such as sqlite:///limits.db,"
    " or --name (or ZAEL_STACK), such as zae-limiter."
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
    """Add the options that choose a store and a namespace, given to the command as `target`."""

    @wraps(command)
    def with_target(*args: Any, namespace: str, **options: Any) -> Any:
        url = _take_url(options)
        return command(*args, target=Target(url, namespace), **options)

    return _with_store(_namespace(with_target))


def optional_store_options(command: Command) -> Callable[..., Any]:
    """Add the options that choose a store and a namespace, for a command that can do without:
    `target` is None if no store is named."""

    @wraps(command)
    def with_target(*args: Any, namespace: str, **options: Any) -> Any:
        if options["url"] or options["stack"]:
            url = _take_url(options)
            return command(*args, target=Target(url, namespace), **options)
        rest = {key: value for key, value in options.items() if key not in _STORE_NAMES}
        return command(*args, target=None, **rest)

    return _with_store(_namespace(with_target))


def require_store(target: Target | None) -> Target:
    """Return the target, or say that no store is named."""
    if target is None:
        raise click.UsageError(_NO_STORE)
    return target


def change_options(command: Command) -> Callable[..., Any]:
    """Add the options of a command that changes what is stored: store, namespace and author."""
    return store_options(_with_author(command))


def registry_change_options(command: Command) -> Callable[..., Any]:
    """Add the options of a command that changes the list of namespaces: store and author."""
    return registry_options(_with_author(command))


def _with_author(command: Command) -> Callable[..., Any]:
    @wraps(command)
    def with_author(*args: Any, target: Target, principal: str | None, **options: Any) -> Any:
        return command(*args, target=replace(target, principal=principal), **options)

    return _principal(with_author)


def registry_options(command: Command) -> Callable[..., Any]:
    """Add the options that choose a store alone, for commands about namespaces."""

    @wraps(command)
    def with_target(*args: Any, **options: Any) -> Any:
        url = _take_url(options)
        return command(*args, target=Target(url), **options)

    return _with_store(with_target)


def _with_store(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_STORE):
        command = option(command)
    return command


def _take_url(options: dict[str, Any]) -> str:
    """Take the options of the store out of the others, and return the URL that they mean."""
    url, stack = options.pop("url"), options.pop("stack")
    region, endpoint_url = options.pop("region"), options.pop("endpoint_url")
    given = click.get_current_context().get_parameter_source
    if url and stack and given("url") != given("stack"):
        # An argument counts for more than the environment.
        url, stack = (url, None) if given("url") is _TYPED else (None, stack)
    if url:
        if stack and given("stack") is _TYPED:
            raise click.UsageError("--url and --name both name a store: give one of them.")
        for option, value in {"--region": region, "--endpoint-url": endpoint_url}.items():
            if value:
                raise click.UsageError(f"{option} goes with --name: --url names the store already.")
        return str(url)
    if not stack:
        raise click.UsageError(_NO_STORE)
    return dynamodb_url(stack, region, endpoint_url)


def _read_limits(
    ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[Limit, ...]:
    try:
        return tuple(Limit.parse(text) for text in texts)
    except ValidationError as error:
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


inherit_option = click.option(
    "--inherit",
    is_flag=True,
    help="Merge by name with the limits of the next level, instead of replacing them.",
)


def examples(*lines: str, on_a_store: bool = True) -> str:
    """Return the end of a command's help, kept as it is typed."""
    typed = [f"zae-limiter {line}" for line in lines]
    if on_a_store:
        typed.insert(0, "export ZAEL_URL=sqlite:///limits.db")
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in typed)
