"""`zae-limiter aggregate` counts the usage of a DynamoDB table from its stream."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import get_args

import click

from ..backends.dynamodb.url import DynamoUrl
from ..backends.store_url import OpenRequest
from ..backends.urls import parse_url
from ..core.exceptions import ValidationError
from ..core.validation import RESERVED_NAMESPACE
from ..core.windows import WINDOW_TYPES, WindowType
from ..flows.scope import Scope
from ..flows.stream.aggregate import MAX_RETENTION_DAYS, RETENTION_DAYS, StreamSettings
from ..flows.stream.batch import StreamWork
from ..flows.stream.follow import Follower, FollowSettings
from ..ports.io import Signal
from ..runtime.asyncio_driver import AsyncioIo
from .aggregate_report import Reporter, choose_reporter
from .options import registry_options
from .target import Target

INTERRUPTED_CODE = 128 + signal.SIGINT
# Someone who waits for the end should not wait for long.
_POLL_ONCE_S = 0.2


def _read_windows(
    ctx: click.Context, parameter: click.Parameter, text: str
) -> tuple[WindowType, ...]:
    """Return the windows of a list with commas, in the order of their length."""
    named = {name.strip() for name in text.split(",") if name.strip()}
    if not named or not named <= set(get_args(WindowType)):
        raise click.BadParameter(f"must be some of {','.join(WINDOW_TYPES)}")
    return tuple(window for window in WINDOW_TYPES if window in named)


_EPILOG = """\b
Example:
  export ZAEL_URL=dynamodb://us-east-1/my-stack
  zae-limiter aggregate
  zae-limiter aggregate --once --windows hourly,daily"""


@click.command(epilog=_EPILOG)
@click.option("--once", is_flag=True, help="Catch up with the stream and exit, as for cron.")
@click.option(
    "--windows",
    callback=_read_windows,
    default=",".join(WINDOW_TYPES),
    show_default=True,
    help="The windows to keep snapshots of.",
)
@click.option(
    "--retention-days",
    type=click.IntRange(1, MAX_RETENTION_DAYS),
    default=RETENTION_DAYS,
    show_default=True,
    help="How long to keep a snapshot after its window.",
)
@click.option(
    "--refill/--no-refill",
    default=False,
    show_default=True,
    help="Refill busy buckets, for clients that do not.",
)
@click.option(
    "--every",
    "every_s",
    type=click.IntRange(1, 15),
    default=1,
    show_default=True,
    help="Seconds between two looks at the stream: more is cheaper, and later.",
)
@click.option("--archive-bucket", help="Keep expired audit events in this S3 bucket.")
@click.option("--json", "as_json", is_flag=True, help="Print progress as JSON lines.")
@registry_options
def aggregate(
    once: bool,
    windows: tuple[WindowType, ...],
    retention_days: int,
    refill: bool,
    every_s: int,
    archive_bucket: str | None,
    as_json: bool,
    target: Target,
) -> None:
    """Count usage from the stream of a DynamoDB table.

    The process follows the table's stream and adds to usage snapshots, each write counted once. It
    keeps its place in the table, so it can be ended at any moment and started again within a day.
    Any number of processes share the work. SIGTERM and Ctrl-C end it after the batch at hand.
    """
    url = _streamed(target.url)
    settings = StreamSettings(windows, retention_days, refills=refill)
    reporter = choose_reporter(as_json)
    follow = _follow_settings(once, every_s)
    try:
        interrupted = asyncio.run(_aggregate(url, settings, archive_bucket, follow, reporter))
    except KeyboardInterrupt:
        interrupted = True
    sys.exit(INTERRUPTED_CODE if interrupted else 0)


def _streamed(text: str) -> DynamoUrl:
    url = parse_url(text)
    if not isinstance(url, DynamoUrl):
        raise ValidationError(
            "url", text, f"a {url.scheme} store counts usage itself, with every write"
        )
    return url


async def _aggregate(
    url: DynamoUrl,
    settings: StreamSettings,
    archive_bucket: str | None,
    follow: FollowSettings,
    reporter: Reporter,
) -> bool:
    """Follow the stream of the table, and return whether the user interrupted it."""
    from ..backends.dynamodb.checkpoints import DynamoCheckpoints
    from ..backends.dynamodb.streams import open_stream
    from ..backends.s3 import S3Archive

    io = AsyncioIo()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(io.close)
        store = await url.open(io, OpenRequest(create=False, blocking=False))
        stack.push_async_callback(store.close)
        stream = await open_stream(
            store.table, blocking=False, region=url.region, endpoint_url=url.endpoint_url
        )
        stack.push_async_callback(stream.close)
        archive = S3Archive(io, archive_bucket) if archive_bucket else None
        work = StreamWork(Scope(store, io, RESERVED_NAMESPACE), store.usage, settings, archive)
        checkpoints = DynamoCheckpoints(store.table, work.name)
        follower = Follower(work, stream, checkpoints, follow)
        stop = io.signal()
        with stopped_in_order(stop) as received, reporter.showing(url.text) as show:
            await follower.follow(stop, show)
        reporter.end(follower.progress)
        return signal.SIGINT in received


def _follow_settings(once: bool, every_s: int) -> FollowSettings:
    owner = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    return FollowSettings(owner, once, _POLL_ONCE_S if once else every_s)


@contextmanager
def stopped_in_order(stop: Signal) -> Iterator[list[int]]:
    """Let the first SIGTERM or Ctrl-C set the signal, and a second one end the process where it
    is. Gives the list of signals that were received."""
    received: list[int] = []

    def handle(number: int, frame: object) -> None:
        received.append(number)
        stop.set()
        if len(received) > 1:
            raise KeyboardInterrupt

    previous = {n: signal.signal(n, handle) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
