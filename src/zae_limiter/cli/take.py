"""`zae-limiter acquire`, `available` and `run` take tokens for shell scripts and commands."""

from __future__ import annotations

import math
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click

from ..core.rate_limit_exceeded import RateLimitExceeded
from ..lease import SyncLease
from ..sync_limiter import SyncRateLimiter
from .commands import CANNOT_RUN, NOT_FOUND, REFUSED
from .options import Command, examples, json_option, store_options
from .output import print_json, print_line, print_table
from .target import Target

_OF_SIGNALS = 128
# Python refuses to read numbers of thousands of digits, and no limit is that large.
_AMOUNT = re.compile("[0-9]{1,30}")


def _read_amounts(
    ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for text in texts:
        name, colon, number = text.rpartition(":")
        if not (name and colon and _AMOUNT.fullmatch(number)):
            raise click.BadParameter(f"{text[:50]!r} is not name:amount, for example tpm:500")
        if name in amounts:
            raise click.BadParameter(f"{name} is named twice")
        amounts[name] = int(number)
    return amounts


def _amounts_option(*, required: bool) -> Callable[[Command], Command]:
    return click.option(
        "--take",
        "-t",
        "consume",
        multiple=True,
        required=required,
        callback=_read_amounts,
        metavar="NAME:AMOUNT",
        help="Tokens of a limit, for example tpm:500. Repeat for several.",
    )


_wait_option = click.option(
    "--wait",
    "-w",
    "timeout",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Wait for tokens this long at most, first come first served.",
)


@contextmanager
def _lease(
    target: Target, entity_id: str, resource: str, amounts: dict[str, int], timeout: float | None
) -> Iterator[SyncLease]:
    with (
        target.connect() as repository,
        SyncRateLimiter(repository).acquire(entity_id, resource, amounts, timeout=timeout) as lease,
    ):
        yield lease


@click.command(
    epilog=examples(
        "acquire key-1 gpt-4 -t rpm:1 -t tpm:500",
        "acquire key-1 gpt-4 -t rpm:1 --wait 30",
    )
)
@click.argument("entity_id")
@click.argument("resource")
@_amounts_option(required=True)
@_wait_option
@json_option
@store_options
def acquire(
    entity_id: str,
    resource: str,
    consume: dict[str, int],
    timeout: float | None,
    as_json: bool,
    target: Target,
) -> None:
    """Take tokens from an entity's bucket. They stay taken.

    Exit code 3 says that a limit refused.
    """
    try:
        with _lease(target, entity_id, resource, consume, timeout):
            pass
    except RateLimitExceeded as refused:
        if not as_json:
            raise
        print_json({"admitted": False, **refused.as_dict()})
        raise SystemExit(REFUSED) from refused
    if as_json:
        taken = {"entity_id": entity_id, "resource": resource, "taken": consume}
        print_json({"admitted": True, **taken})
    else:
        print_line(f"Took {_spoken(consume)}")


def _spoken(amounts: dict[str, int]) -> str:
    return ", ".join(f"{amount:,} {name}" for name, amount in amounts.items())


@click.command(epilog=examples("available key-1 gpt-4", "available key-1 gpt-4 -t tpm:500"))
@click.argument("entity_id")
@click.argument("resource")
@_amounts_option(required=False)
@json_option
@store_options
def available(
    entity_id: str, resource: str, consume: dict[str, int], as_json: bool, target: Target
) -> None:
    """Show how much could be taken now, and take nothing."""
    with target.connect() as repository:
        limiter = SyncRateLimiter(repository)
        balances = limiter.available(entity_id, resource)
        seconds = limiter.time_until_available(entity_id, resource, consume) if consume else 0.0
    wait = None if math.isinf(seconds) else seconds
    if as_json:
        print_json({"available": balances, "needed": consume, "seconds_until_available": wait})
        return
    print_table(
        ["Limit", "Available"],
        [(name, f"{left:,}") for name, left in balances.items()],
        right=["Available"],
    )
    if consume:
        when = "never" if wait is None else "now" if not wait else f"in {wait:,.1f} s"
        print_line(f"{_spoken(consume)}: {when}")


class _RunCommand(click.Command):
    """A command that ends with another program's arguments. Without two dashes before these, their
    options would be taken for its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        wants_help = any(name in args for name in ctx.help_option_names)
        if "--" not in args and not wants_help and not ctx.resilient_parsing:
            raise click.UsageError("Write -- before the command.", ctx)
        return super().parse_args(ctx, args)


@click.command(
    cls=_RunCommand,
    epilog=examples("run nightly jobs -t runs:1 --wait 60 -- python -c 'print(1)'"),
)
@click.argument("entity_id")
@click.argument("resource")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@_amounts_option(required=True)
@_wait_option
@store_options
def run(
    entity_id: str,
    resource: str,
    command: tuple[str, ...],
    consume: dict[str, int],
    timeout: float | None,
    target: Target,
) -> None:
    """Run a command under a lease, and return its exit code.

    The tokens are taken before the command starts, and given back if it fails. Write -- before
    the command.
    """
    try:
        with _lease(target, entity_id, resource, consume, timeout):
            _carry_out(command)
    except _CommandFailed as failed:
        raise SystemExit(failed.code) from None


class _CommandFailed(Exception):
    """A command ended with another exit code than 0."""

    def __init__(self, code: int) -> None:
        self.code = code


def _carry_out(command: Sequence[str]) -> None:
    """Run a command to its end. Whoever interrupts or ends this process means the command."""
    child = _Child()
    with _passing_on(child.tell):
        code = child.run(command)
    if code:
        raise _CommandFailed(code if code > 0 else _OF_SIGNALS - code)


class _Child:
    """A child is the process of a command. Signals that come while it starts are sent when it
    has: without this, they would end this process, and leave the command without a lease."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def tell(self, number: int) -> None:
        """Send a signal to the command. A terminal has sent an interrupt to it already."""
        if number == signal.SIGINT:
            return
        if self._process is None:
            self._early.append(number)
        else:
            self._process.send_signal(number)

    def run(self, command: Sequence[str]) -> int:
        """Run a command to its end, and return its code."""
        try:
            self._process = subprocess.Popen(command)
        except OSError as error:
            click.echo(f"Error: cannot run {command[0]}: {error.strerror}", err=True)
            missing = isinstance(error, FileNotFoundError)
            raise _CommandFailed(NOT_FOUND if missing else CANNOT_RUN) from error
        for number in self._early:
            self._process.send_signal(number)
        return self._process.wait()


@contextmanager
def _passing_on(tell: Callable[[int], None]) -> Iterator[None]:
    """Hear of signals instead of ending by them. Signals that are ignored, as under nohup and in
    the background, stay so: they are for the command to ignore, too."""
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    heard = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in heard:
        signal.signal(number, lambda number, _: tell(number))
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])
