"""This module has the options that say where a stack is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from ..naming import DEFAULT_STACK_NAME
from .options import Command

if TYPE_CHECKING:
    from ..infra.sync_stack_manager import SyncStackManager


@dataclass(frozen=True, slots=True)
class StackPlace:
    """A stack place is the name of a stack, and the region or endpoint it is in."""

    name: str
    region: str | None
    endpoint_url: str | None

    @contextmanager
    def managed(self, *, allow_downgrade: bool = False) -> Iterator[SyncStackManager]:
        """Open the manager of the stack for the length of a block."""
        # Imported here: other commands need not wait for it.
        from ..infra.sync_stack_manager import SyncStackManager

        with SyncStackManager(
            self.name, self.region, self.endpoint_url, allow_downgrade=allow_downgrade
        ) as manager:
            yield manager

    @property
    def options(self) -> str:
        """The options that name this place on the command line."""
        region = f" --region {self.region}" if self.region else ""
        endpoint = f" --endpoint-url {self.endpoint_url}" if self.endpoint_url else ""
        return f"--name {self.name}{region}{endpoint}"


region_option = click.option("--region", help="The AWS region.")
endpoint_option = click.option("--endpoint-url", help="The endpoint, if it is not AWS.")


def name_option(*, named: bool) -> Callable[[Command], Command]:
    """Return the option with the stack's name. `named`: there is no default, because the command
    must not hit a stack by accident."""
    usual: Any = {"default": DEFAULT_STACK_NAME, "show_default": True}
    return click.option(
        "--name",
        "-n",
        envvar="ZAEL_STACK",
        show_envvar=True,
        help="The stack, which is also the name of its table.",
        **({"required": True} if named else usual),
    )


def place_options(*, named: bool) -> Callable[[Command], Callable[..., Any]]:
    """Add the options that choose a stack, given to the command as `place`."""
    name = name_option(named=named)

    def decorate(command: Command) -> Callable[..., Any]:
        @wraps(command)
        def with_place(*args: Any, **options: Any) -> Any:
            chosen = [options.pop(key) for key in ("name", "region", "endpoint_url")]
            return command(*args, place=StackPlace(*chosen), **options)

        return name(region_option(endpoint_option(with_place)))

    return decorate
