"""This module is the root of all commands: it turns the package's errors into messages."""

from __future__ import annotations

from typing import Any

import click

from ..core.exceptions import (
    InfrastructureNotFoundError,
    NamespaceNotFoundError,
    ZAELimiterError,
)

_HINTS: dict[type[ZAELimiterError], str] = {
    InfrastructureNotFoundError: (
        "Check --url or --name. `zae-limiter deploy` makes a stack on AWS,"
        " `zae-limiter namespace register NAME` any other store."
    ),
    NamespaceNotFoundError: (
        "`zae-limiter namespace list` shows those that are; `namespace register` adds one."
    ),
}


class Commands(click.Group):
    """A group whose commands end with exit code 1 and one message when they fail."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ZAELimiterError as error:
            raise click.ClickException(_message(error)) from error


def _message(error: ZAELimiterError) -> str:
    hint = _HINTS.get(type(error))
    return str(error) if hint is None else f"{error}\nHint: {hint}"
