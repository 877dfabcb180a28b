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
from .output import print_json, print_table
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
        "amounts",
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
    amounts: dict[str, int],
    timeout: float | None,
    as_json: bool,
    target: Target,
) -> None:
    """Take tokens from an entity's bucket. They stay taken.

    Exit code 3 says that a limit refused.
    """
    try:
        with _lease(target, entity_id, resource, amounts, timeout):
            pass
    except RateLimitExceeded as refused:
        if not as_json:
            raise
        print_json({"admitted": False, **refused.as_dict()})
        raise SystemExit(REFUSED) from refused
    if as_json:
        taken = {"entity_id": entity_id, "resource": resource, "taken": amounts}
        print_json({"admitted": True, **taken})
    else:
        click.echo(f"Took {_spoken(amounts)}")


def _spoken(amounts: dict[str, int]) -> str:
    return ", ".join(f"{amount:,} {name}" for name, amount in amounts.items())


@click.command(epilog=examples("available key-1 gpt-4", "available key-1 gpt-4 -t tpm:500"))
@click.argument("entity_id")
@click.argument("resource")
@_amounts_option(required=False)
@json_option
@store_options
def available(
    entity_id: str, resource: str, amounts: dict[str, int], as_json: bool, target: Target
) -> None:
    """Show how much could be taken now, and take nothing."""
    with target.connect() as repository:
        limiter = SyncRateLimiter(repository)
        balances = limiter.available(entity_id, resource)
        seconds = limiter.time_until_available(entity_id, resource, amounts) if amounts else 0.0
    wait = None if math.isinf(seconds) else seconds
    if as_json:
        print_json({"available": balances, "needed": amounts, "seconds_until_available": wait})
        return
    print_table(["Limit", "Available"], list(balances.items()), right=["Available"])
    if amounts:
        when = "never" if wait is None else "now" if not wait else f"in {wait:,.1f} s"
        click.echo(f"{_spoken(amounts)}: {when}")


@click.command(
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
    amounts: dict[str, int],
    timeout: float | None,
    target: Target,
) -> None:
    """Run a command under a lease, and return its exit code.

    The tokens are taken before the command starts, and given back if it fails. Write -- before
    the command.
    """
    try:
        with _lease(target, entity_id, resource, amounts, timeout):
            _carry_out(command)
    except _CommandFailed as failed:
        raise SystemExit(failed.code) from None


class _CommandFailed(Exception):
    """A command ended with another exit code than 0."""

    def __init__(self, code: int) -> None:
        self.code = code


def _carry_out(command: Sequence[str]) -> None:
    """Run a command to its end. Whoever interrupts or ends this process means the command."""
    try:
        child = subprocess.Popen(command)
    except OSError as error:
        click.echo(f"Error: cannot run {command[0]}: {error.strerror}", err=True)
        missing = isinstance(error, FileNotFoundError)
        raise _CommandFailed(NOT_FOUND if missing else CANNOT_RUN) from error
    # A terminal sends its interrupt to the command as well.
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: child.terminate()),
    }
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        # Not under nohup, which means that the command is to go on.
        hang_up = signal.SIGHUP
        before[hang_up] = signal.signal(hang_up, lambda *_: child.send_signal(hang_up))
    try:
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if code:
        raise _CommandFailed(code if code > 0 else _OF_SIGNALS - code)
