"""This module shows how far CloudFormation is: to a program, a pipe or a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import click

from ..infra.stack_events import OnEvent, StackEvent

if TYPE_CHECKING:
    from rich.console import RenderableType


class StackReporter(Protocol):
    """A stack reporter is shown each event of a stack."""

    def events(self) -> AbstractContextManager[OnEvent]:
        """Return a context that gives a function to be called with each event."""


def choose_stack_reporter(as_json: bool) -> StackReporter:
    """Return the reporter that suits standard output."""
    if as_json:
        return JsonEvents()
    return LiveEvents() if sys.stdout.isatty() else PlainEvents()


class JsonEvents:
    """A program is shown a line of JSON for each event."""

    @contextmanager
    def events(self) -> Iterator[OnEvent]:
        yield lambda event: print_json_line({"event": event.to_dict()})


class PlainEvents:
    """A pipe is shown a line for each event, without control codes."""

    @contextmanager
    def events(self) -> Iterator[OnEvent]:
        yield _print_event


class LiveEvents:
    """A terminal shows each resource with its latest state, and keeps failures."""

    @contextmanager
    def events(self) -> Iterator[OnEvent]:
        from rich.console import Console
        from rich.live import Live

        latest: dict[str, StackEvent] = {}
        console = Console(highlight=False, markup=False, emoji=False)
        with Live(console=console, auto_refresh=False, transient=True) as live:

            def show(event: StackEvent) -> None:
                latest[event.logical_id] = event
                if event.status.endswith("_FAILED"):
                    console.print(event_line(event), soft_wrap=True)
                live.update(draw_events(latest.values()), refresh=True)

            yield show


def draw_events(latest: Iterable[StackEvent]) -> RenderableType:
    """Draw a row for each resource."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("Resource", "Type", "State"):
        table.add_column(column, no_wrap=True)
    for event in latest:
        table.add_row(event.logical_id, event.resource_type.removeprefix("AWS::"), event.status)
    return table


def event_line(event: StackEvent) -> str:
    """Return an event in a line."""
    said = f"  {event.at} {event.status:<20} {event.logical_id}"
    return f"{said}: {event.reason}" if event.reason else said


def _print_event(event: StackEvent) -> None:
    click.echo(event_line(event))
    sys.stdout.flush()


def print_json_line(value: Mapping[str, Any]) -> None:
    """Print a line of JSON, and do not hold it back."""
    click.echo(json.dumps(value))
    sys.stdout.flush()
