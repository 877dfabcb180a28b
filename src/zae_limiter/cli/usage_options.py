"""This module has the options that the commands about usage share."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal

import click

from ..core.exceptions import StorageUnavailable
from ..core.windows import WINDOW_TYPES
from ..ports.stream import StreamedStore
from ..runtime.blocking import run
from ..sync_repository import SyncRepository
from ..visualization.sparkline import ASCII_BARS, BARS
from .options import Command, json_option
from .output import print_json

OutputForm = Literal["text", "json", "csv"]
_NOTHING_FOUND = "No usage found"
_NOTHING_COUNTED = (
    "No usage found, and it seems that nothing counts it: on DynamoDB a reader of the table's\n"
    "stream does, and none has left a checkpoint here.\n"
    "Hint: `zae-limiter aggregate` is one; start it within a day of the usage.\n"
    "A Lambda leaves no checkpoint."
)

_times = (
    click.option("--start", "start_time", help="Windows that begin then or later, ISO 8601."),
    click.option("--end", "end_time", help="Windows that begin then or before, ISO 8601."),
)
_window = click.option(
    "--window",
    "-w",
    "window_type",
    type=click.Choice(WINDOW_TYPES),
    help="Only windows of this type.",
)
_entity = click.option("--entity-id", "-e", help="The entity. This or the resource is needed.")
_resource = click.option("--resource", "-r", help="The resource. This or the entity is needed.")
_csv = click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")


def filter_options(command: Command) -> Callable[..., Any]:
    """Add the options that choose snapshots, given to the command as `filters`."""

    @wraps(command)
    def with_filters(*args: Any, **options: Any) -> Any:
        names = ("entity_id", "resource", "window_type", "start_time", "end_time")
        filters = {name: options.pop(name) for name in names}
        if filters["entity_id"] is None and filters["resource"] is None:
            raise click.UsageError("Give --entity-id, --resource or both.")
        return command(*args, filters=filters, **options)

    return _added(with_filters, _entity, _resource, _window, *_times)


def time_options(command: Command) -> Callable[..., Any]:
    """Add the options that choose windows by their start."""
    return _added(command, *_times)


def form_options(command: Command) -> Callable[..., Any]:
    """Add the options that choose how a result is printed, given to the command as `form`."""

    @wraps(command)
    def with_form(*args: Any, as_json: bool, as_csv: bool, **options: Any) -> Any:
        if as_json and as_csv:
            raise click.UsageError("Give --json or --csv, not both.")
        form: OutputForm = "json" if as_json else "csv" if as_csv else "text"
        return command(*args, form=form, **options)

    return _added(with_form, _csv, json_option)


def _added(command: Callable[..., Any], *options: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Printed:
    """A printed result is what each form of output shows of usage in a repository. CSV begins with
    its columns."""

    repository: SyncRepository
    json: Any
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    text: Callable[[], None]

    def print(self, form: OutputForm) -> None:
        """Print the result in one form. A program that finds nothing is told on standard error if
        nothing counts usage."""
        if form == "text":
            self.text()
            return
        if form == "json":
            print_json(self.json)
        else:
            click.echo(_csv_text([self.columns, *self.rows]), nl=False)
        if not self.rows and not _is_counted(self.repository):
            click.echo(_NOTHING_COUNTED, err=True)


def _csv_text(rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def bars() -> str:
    """Return the bars that standard output can show."""
    try:
        BARS.encode(sys.stdout.encoding or "ascii")
    except UnicodeError:
        return ASCII_BARS
    return BARS


def absence(repository: SyncRepository) -> str:
    """Return the message that no usage was found, and why if nothing has ever counted it."""
    return _NOTHING_FOUND if _is_counted(repository) else _NOTHING_COUNTED


def _is_counted(repository: SyncRepository) -> bool:
    """Whether anything counts usage, as far as this role may know."""
    store = repository.scope.store
    if not isinstance(store, StreamedStore):
        return True
    try:
        return run(store.has_reader())
    except StorageUnavailable:
        # A role that may read usage need not be allowed to read the table's own records.
        return True
