"""`zae-limiter demo` is the command that runs the demo."""

from __future__ import annotations

import secrets
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import click

from ...sync_repository import SyncRepository
from ..options import examples
from ..target import Target
from .audience import choose_audience
from .crew import Crew
from .performance import perform
from .report import INTERRUPTED
from .scenario import jobs, set_up


@click.command(
    epilog=examples("demo", "demo --workers 8 --seconds 5", "demo --json", on_a_store=False)
)
@click.option("--url", help="The store to share; by default a SQLite file made for the demo.")
@click.option(
    "--workers",
    type=click.IntRange(1, 32),
    default=4,
    show_default=True,
    help="How many processes share the store.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 3600),
    default=10.0,
    show_default=True,
    help="How long the processes work.",
)
@click.option("--json", "as_json", is_flag=True, help="Print only the final report, as JSON.")
def demo(url: str | None, workers: int, seconds: float, as_json: bool) -> None:
    """Let processes share limits and check that they hold.

    An organisation has two keys, and what the keys take is charged to it too. Each process asks for
    more than the limits allow, corrects what it took, and sometimes fails and gives it back. At the
    end the processes' own logs are checked: in no interval did a bucket let out more than its
    capacity plus its rate times the time. The exit code is 1 if a bucket did.
    """
    audience = choose_audience(as_json)
    try:
        with _ended_in_order(), _stage(url) as (store, repository):
            crew = Crew(jobs(store.url, store.namespace, workers))
            report = perform(crew, repository, seconds, audience)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    audience.tell(report)
    sys.exit(report.exit_code)


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let SIGTERM and Ctrl-C unwind the stack, so that nothing is left behind.

    A parent that ignores SIGINT, as shells do for jobs in the background, passes that on.
    Without a handler set here, the demo could not be interrupted then.
    """
    handlers = {
        signal.SIGTERM: lambda number, frame: sys.exit(128 + number),
        signal.SIGINT: signal.default_int_handler,
    }
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _stage(url: str | None) -> Iterator[tuple[Target, SyncRepository]]:
    """Open a namespace of the demo's own, in a file of its own unless a store is named."""
    with ExitStack() as stack:
        if url is None:
            directory = stack.enter_context(TemporaryDirectory(prefix="zae-limiter-demo-"))
            url = f"sqlite:///{quote(str(Path(directory, 'limits.db')))}"
        target = Target(url, f"demo-{secrets.token_hex(4)}")
        repository = stack.enter_context(target.open())
        stack.callback(repository.purge_namespace, repository.namespace_id)
        stack.callback(repository.delete_namespace, repository.namespace_name)
        set_up(repository)
        yield target, repository
