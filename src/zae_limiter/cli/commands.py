"""This module is the root of all commands: it turns the package's errors into messages.

Exit codes: 0 done, 1 error, 2 wrong use, 3 refused by a limit, 4 the store could not answer,
130 interrupted. `zae-limiter run` returns the code of its command; 126 and 127 say that it could
not be run or was not found.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from ..core.exceptions import (
    InfrastructureNotFoundError,
    NamespaceNotFoundError,
    RateLimiterUnavailable,
    ValidationError,
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


# Fields that have options, but may come from --url as well.
_PARTS_OF_URL = ("url", "stack", "region", "endpoint_url")

# The key of a context under which the command is that was called.
_COMMAND = f"{__name__}.command"

# Options of a store that may stand before the command, as those of one program are often typed.
_EARLY = ("--url", "--name", "-n", "--region", "--endpoint-url", "--namespace", "-N")


class Commands(click.Group):
    """A group whose commands end with a documented exit code and one message when they fail."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        command, typed = self._with_early_moved(ctx, args)
        with _telling_failures(command):
            return super().parse_args(ctx, typed)

    def _with_early_moved(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[click.Command, list[str]]:
        """Return the command that arguments name, and the arguments with the options of a store
        that stand before or within that name moved behind it. Options before no command go."""
        command: click.Command | None = self
        early: list[str] = []
        rest = list(args)
        place = 0
        while isinstance(command, click.Group):
            taken = _count_early(rest[place:])
            early += rest[place : place + taken]
            del rest[place : place + taken]
            if place == len(rest):
                return command, rest
            command = command.get_command(ctx, rest[place])
            place += 1
        if command is None:
            return self, rest
        ctx.meta[_COMMAND] = command
        return command, [*rest[:place], *early, *rest[place:]]

    def invoke(self, ctx: click.Context) -> Any:
        with _telling_failures(ctx.meta.get(_COMMAND, self)):
            return super().invoke(ctx)


def _count_early(args: list[str]) -> int:
    """Return how many of the first arguments are options of a store and their values."""
    place = 0
    while place < len(args):
        option, equals, _ = args[place].partition("=")
        if option not in _EARLY:
            break
        place += 1 if equals else 2
    return min(place, len(args))


@contextmanager
def _telling_failures(command: click.Command) -> Iterator[None]:
    """Turn errors into messages, and interrupts into their exit code."""
    try:
        yield
    except ZAELimiterError as error:
        raise _failure(error, command) from error
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


def _failure(error: ZAELimiterError, command: click.Command) -> click.ClickException:
    hint = _HINTS.get(type(error))
    text = _as_typed(error, command) if isinstance(error, ValidationError) else str(error)
    make = next(failure for kind, failure in _FAILURES if isinstance(error, kind))
    return make(text if hint is None else f"{text}\nHint: {hint}")


def _as_typed(error: ValidationError, command: click.Command) -> str:
    """Return the message with the name of the option that was typed, in place of the field that
    the option sets."""
    prefix = f"Invalid {error.field}: "
    options = {p.name: p.opts[0] for p in command.params if isinstance(p, click.Option)}
    option = None if error.field in _PARTS_OF_URL else options.get(error.field)
    text = str(error)
    if option is None or not text.startswith(prefix):
        return text
    return f"Invalid {option}: {text.removeprefix(prefix)}"
