"""This module is the root of all commands: it turns the package's errors into messages.

Exit codes: 0 done, 1 error, 2 wrong use, 3 refused by a limit, 4 the store could not answer,
130 interrupted. `zae-limiter run` returns the code of its command; 126 and 127 say that it could
not be run or was not found.
"""

from __future__ import annotations

import errno
from typing import Any

import click

from ..core.exceptions import (
    InfrastructureNotFoundError,
    NamespaceNotFoundError,
    RateLimiterUnavailable,
    ZAELimiterError,
)
from ..core.rate_limit_exceeded import RateLimitExceeded

REFUSED, UNAVAILABLE, CANNOT_RUN, NOT_FOUND, INTERRUPTED = 3, 4, 126, 127, 130

_HINTS: dict[type[ZAELimiterError], str] = {
    InfrastructureNotFoundError: (
        "Check --url or --name. `zae-limiter deploy` makes a stack on AWS,"
        " `zae-limiter namespace register NAME` any other store."
    ),
    NamespaceNotFoundError: (
        "`zae-limiter namespace list` shows those that are; `namespace register` adds one."
    ),
}


class _Refused(click.ClickException):
    """A limit refused."""

    exit_code = REFUSED


class _Unavailable(click.ClickException):
    """The store could not answer."""

    exit_code = UNAVAILABLE


class _Interrupted(click.ClickException):
    """The user pressed Ctrl-C."""

    exit_code = INTERRUPTED

    def __init__(self) -> None:
        super().__init__("interrupted")


_FAILURES: tuple[tuple[type[ZAELimiterError], type[click.ClickException]], ...] = (
    (RateLimitExceeded, _Refused),
    (RateLimiterUnavailable, _Unavailable),
    (ZAELimiterError, click.ClickException),
)


# Options of a store that may stand before the command, as those of one program are often typed.
_EARLY = ("--url", "--name", "-n", "--region", "--endpoint-url", "--namespace", "-N")


class Commands(click.Group):
    """A group whose commands end with a documented exit code and one message when they fail."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        early, rest = _take_early(args)
        place = self._end_of_name(ctx, rest)
        if place is not None:
            rest[place:place] = early
        return super().parse_args(ctx, rest)

    def _end_of_name(self, ctx: click.Context, args: list[str]) -> int | None:
        """Return how many arguments name the command: one, or its group and it; None if these
        name no command."""
        command: click.Command | None = self
        for place, name in enumerate(args):
            if not isinstance(command, click.Group):
                return place
            command = command.get_command(ctx, name)
        return len(args) if command is not None and not isinstance(command, click.Group) else None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ZAELimiterError as error:
            raise _failure(error) from error
        except KeyboardInterrupt as error:
            raise _Interrupted from error
        except click.Abort as error:
            # At a prompt, click turns an interrupt into an `Abort`.
            if isinstance(error.__context__, KeyboardInterrupt):
                raise _Interrupted from error
            raise
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            raise click.ClickException(str(error)) from error


def _take_early(args: list[str]) -> tuple[list[str], list[str]]:
    """Return the options of a store that stand before the command, and all other arguments."""
    place = 0
    while place < len(args):
        option, equals, _ = args[place].partition("=")
        if option not in _EARLY:
            break
        place += 1 if equals else 2
    return args[:place], args[place:]


def _failure(error: ZAELimiterError) -> click.ClickException:
    hint = _HINTS.get(type(error))
    make = next(failure for kind, failure in _FAILURES if isinstance(error, kind))
    return make(str(error) if hint is None else f"{error}\nHint: {hint}")
